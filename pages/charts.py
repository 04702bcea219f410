"""Draws a chart that does not move. Its title stands above it as text, so that it wraps on a narrow screen."""

from __future__ import annotations

from datetime import UTC, tzinfo
from html import escape, unescape
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import plotly.graph_objects as go
import streamlit as st

_PLAIN = {"displaylogo": False, "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"], "responsive": True}


def dark() -> bool:
    """Whether the viewer sees the dark theme."""
    return st.context.theme.type == "dark"


def zone() -> tzinfo:
    """The viewer's time zone; UTC where the browser does not tell."""
    try:
        return ZoneInfo(st.context.timezone or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return UTC


def draw(figure: go.Figure, *, key: str) -> None:
    """One chart with its title. Never within a fragment that runs often: each change of its data mounts it anew."""
    title, subtitle = figure.layout.title.text or "", figure.layout.title.subtitle.text or ""
    head_px = 48 if title else 0
    figure.update_layout(
        title={"text": None, "subtitle": {"text": None}},
        margin_t=max(6, figure.layout.margin.t - head_px),
        height=figure.layout.height - head_px,
    )
    with st.container(gap=None):
        st.html(f"<div class='hw-chart-title'><b>{_html(title)}</b><br><span class='hw-dim'>{_html(subtitle)}</span></div>")
        st.plotly_chart(figure, theme=None, key=key, config=_PLAIN, alt=f"{unescape(title)}: {unescape(subtitle)}")


def _html(plotly_words: str) -> str:
    return escape(unescape(plotly_words))
