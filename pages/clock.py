"""Times as the viewer's clock shows them, with UTC to look up: two people in two zones speak of the same moment."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from html import escape
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

from backend.report.formatting import DASH, duration, moment


def zone() -> tzinfo:
    """The viewer's time zone; UTC where the browser does not tell."""
    return zone_of(st.context.timezone)


def zone_of(name: str | None) -> tzinfo:
    """The zone of that name, which a browser told; UTC for one that does not exist."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def local(at: float | None) -> str:
    """Epoch seconds → "30 Nov 16:12:09" in the viewer's zone, with the year where it is not this one."""
    if at is None:
        return DASH
    here = datetime.fromtimestamp(at, zone())
    year = "" if here.year == datetime.now(zone()).year else f" {here.year}"
    return f"{here.day} {here:%b}{year} {here:%H:%M:%S}"


def ago(at: float | None, now: float) -> str:
    """How long ago that was: "3 min 12 s ago"."""
    return DASH if at is None else f"{duration(max(0.0, now - at))} ago"


def time_html(at: float | None, words: str | None = None) -> str:
    """The time (or `words` in its place) for `st.html`, UTC on hover."""
    if at is None:
        return DASH
    return f'<time title="{escape(moment(at))}">{escape(words or local(at))}</time>'
