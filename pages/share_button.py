"""Share: what is known of a run's end as files to hand on, and a paragraph to copy. It writes into the run's `shared/` only.

This is no wish to a supervisor, so nothing of `backend.control` is needed for it.
"""

from __future__ import annotations

import time

import streamlit as st

from backend.config import ConfigError
from backend.report.share.files import Forms, forms_of, write_forms
from backend.report.share.snapshot import take_snapshot
from backend.run_dir import RunDir, RunDirError
from pages.clock import zone
from pages.nothing import cannot


def share_button(run: RunDir) -> None:
    """The button. It stands outside of fragments that are read again by themselves: they would close what it opens."""
    if st.button("Share", key="share", help="A page, a picture and a paragraph for those who wait for the data"):
        _share(run)


@st.dialog("Share how this run goes", width="medium")
def _share(run: RunDir) -> None:
    try:
        forms = forms_of(take_snapshot(run, time.time(), zone()))
    except (ConfigError, RunDirError) as error:
        cannot(run.name, error)
        return
    st.code(forms.paragraph.strip(), language=None, wrap_lines=True)
    with st.container(horizontal=True):
        _download("Page", forms, "html", forms.page, "text/html")
        _download("Picture", forms, "png", forms.picture, "image/png")
        _download("Paragraph", forms, "txt", forms.paragraph.encode(), "text/plain")
    st.text("No prompt, no answer, no path is in them. The page is one file that fetches nothing; times are yours, with UTC.")
    st.text(_written(run, forms))


def _download(word: str, forms: Forms, end: str, content: bytes, kind: str) -> None:
    name = f"{forms.name}.{end}"
    st.download_button(word, content, name, kind, key=f"share-{end}", on_click="ignore", help=f"Download {name}")


def _written(run: RunDir, forms: Forms) -> str:
    try:
        files = write_forms(forms, run.shared)
    except OSError as error:
        return f"They could not be written into {run.shared} ({error.strerror}); what is above can be downloaded all the same."
    return f"Written into {files.page.parent} as well; python -m backend share does that from cron."
