"""Draws a chart that does not move. Its title stands above it as text, so that it wraps on a narrow screen."""

from __future__ import annotations

from html import escape, unescape

import plotly.graph_objects as go
import streamlit as st

from backend.report.charts import HIDDEN_WHEN_NARROW

_PLAIN = {"displaylogo": False, "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"], "responsive": True}


def dark() -> bool:
    """Whether the viewer sees the dark theme."""
    return st.context.theme.type == "dark"


def draw(figure: go.Figure, *, key: str) -> None:
    """One chart with its title. Never within a fragment that runs often: each change of its data mounts it anew."""
    title, subtitle = figure.layout.title.text or "", figure.layout.title.subtitle.text or ""
    head_px = 48 if title else 0
    fewer = _fewer_words(figure, f"chart-{key}")
    figure.update_layout(
        title={"text": None, "subtitle": {"text": None}},
        margin_t=max(6, figure.layout.margin.t - head_px),
        height=figure.layout.height - head_px,
    )
    with st.container(gap=None, key=f"chart-{key}"):
        below = f"<div class='hw-dim' style='font-size:12.5px;line-height:1.35'>{_html(subtitle)}</div>"
        st.html(f"<h2 class='hw-heading' style='margin:0'>{_html(title)}</h2>{below}{fewer}")
        st.plotly_chart(figure, theme=None, key=key, config=_PLAIN, alt=f"{unescape(title)}: {unescape(subtitle)}")


def _fewer_words(figure: go.Figure, container: str) -> str:
    """CSS that leaves out, on a narrow screen, the words of marks that would lie on each other there."""
    hidden = (figure.layout.meta or {}).get(HIDDEN_WHEN_NARROW, [])
    if not hidden:
        return ""
    parts = [f'{part}[data-index="{int(i)}"]' for i in hidden for part in (".annotation", ".shape-group")]
    chosen = ",".join(f".st-key-{container} {part}" for part in parts)
    return f"<style>@media (max-width: 640px) {{ {chosen} {{ display: none }} }}</style>"


def _html(plotly_words: str) -> str:
    return escape(unescape(plotly_words))
