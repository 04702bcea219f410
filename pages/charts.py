"""Draws a chart that does not move. Its title stands above it as text, so that it wraps on a narrow screen."""

from __future__ import annotations

from html import escape, unescape

import plotly.graph_objects as go
import streamlit as st

from backend.report.charts import HIDDEN_WHEN_NARROW, NARROW_PLOTS_PX, PLOT_WIDTH_PX

BESIDE_PX = 60  # of a chart's width that are no plot: its scale, about
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
    """CSS that leaves out, where the chart is narrow, the words of marks that would lie on each other there."""
    plots = (figure.layout.meta or {}).get(HIDDEN_WHEN_NARROW, {})
    if not any(plots.values()):
        return ""
    beside_px, rules, wider = BESIDE_PX + (figure.layout.margin.r or 0), [], PLOT_WIDTH_PX
    for width, hidden in plots.items():
        parts = [f'{part}[data-index="{int(i)}"]' for i in hidden for part in (".annotation", ".shape-group")]
        chosen = ",".join(f".st-key-{container} {part}" for part in parts)
        # the narrowest plot that is reckoned with stands for those below it
        least = int(width) + beside_px if int(width) != NARROW_PLOTS_PX[-1] else 0
        if parts:
            where = f"(min-width: {least}px) and (width < {wider + beside_px}px)"
            rules.append(f"@container {where} {{ {chosen} {{ display: none }} }}")
        wider = int(width)
    return f"<style>.st-key-{container} {{ container-type: inline-size }} {' '.join(rules)}</style>"


def _html(plotly_words: str) -> str:
    return escape(unescape(plotly_words))
