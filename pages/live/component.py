"""The live parts of a page: each polls through one shared module and draws itself in the browser; reruns leave it alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import streamlit as st

from pages.live.routes import files_folder

_LOADER: Final = Path(__file__).with_name("loader.js").read_text()

# Styles are not isolated: plotly.js keeps its own in the document's head, and the page's stylesheet serves tables as well.
_COMPONENT: Final = st.components.v2.component(
    "headway_live", html='<div class="hw-root">\n</div>', js=_LOADER, isolate_styles=False
)


def live_part(part: str, run: str, **more: Any) -> str | None:
    """Mounts `part` (`card`, `watch`, `head`, `figures`, `gpus`) of a run. Returns what `watch` saw change, else None."""
    data = {"part": part, "run": run, "files": files_folder(), **more}
    result = _COMPONENT(key=f"live-{part}", data=data, on_changed_change=lambda: None)
    changed: str | None = result.changed
    return changed


def style() -> None:
    """The stylesheet of every page; its colours are look and states of Headway."""
    here = Path(__file__).parent
    st.html(here / "style.css")
    st.html(here.parent / "tables.css")
