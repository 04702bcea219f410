"""What is spent at APIs is told in status, as a figure, and as unknown where nobody knows it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from backend.records import ApiState, ApiStatus
from backend.report.apis_text import apis_text, spend_figure
from backend.report.status import read_status
from backend.report.status_text import status_text
from backend.report.views import RunView
from tests.made_run import beat, holding_lock, job_status, make_run

OPEN = ApiStatus(
    "a", ApiState.OPEN, in_flight=20, concurrency=64, finished_samples=500, completion_tokens=1_200_000, spent_usd=2.4,
    cap_usd=25, usd_per_minute=0.6, tokens_per_s=5_000, projected_usd=18.5,
)  # fmt: skip


def view_of(tmp_path: Path, *apis: ApiStatus, route: str = "both:a") -> RunView:
    run, said = make_run(tmp_path), job_status()
    datasets = (replace(said.datasets[0], route=route), *said.datasets[1:])
    with holding_lock(run, time.time()):
        beat(run, replace(said, apis=apis, datasets=datasets), time.time())
        return read_status(run, time.time())


def changed(**values: Any) -> ApiStatus:
    return replace(OPEN, **values)


def test_status_tells_spend_speed_cap_and_routes(tmp_path: Path) -> None:
    view = view_of(tmp_path, OPEN)
    text = status_text(view)
    for each in ("$2.40", "$25", "$0.60", "$18.50", "5,000", "Routes: alpha → local and a"):
        assert each in text
    assert (view.datasets[0].route, view.datasets[1].route) == ("both:a", "local")


def test_the_figure_tells_dollars_a_minute_and_what_it_will_come_to(tmp_path: Path) -> None:
    figure = spend_figure(view_of(tmp_path, OPEN))
    assert figure is not None
    assert (figure.value, figure.of) == ("$2.40", "of $25.00")
    assert figure.note == "$0.60/min · projected $18.50"


def test_at_the_cap_and_for_what_nobody_can_know_the_words_are_there(tmp_path: Path) -> None:
    figure = spend_figure(view_of(tmp_path, changed(state=ApiState.CAPPED, reason="its cap of $25 is reached", unsure_usd=0.5)))
    assert figure is not None
    assert "up to $0.50 more unsure" in figure.note
    assert "its cap of $25 is reached" in figure.note


def test_an_unknown_cost_is_never_nothing(tmp_path: Path) -> None:
    view = view_of(tmp_path, changed(spent_usd=None, usd_per_minute=None, projected_usd=None, cap_usd=None))
    figure = spend_figure(view)
    assert figure is not None
    assert figure.value == "unknown"
    assert "unknown" in apis_text(view)


def test_without_an_api_in_use_nothing_is_told(tmp_path: Path) -> None:
    view = view_of(tmp_path, ApiStatus("a", ApiState.IDLE, spent_usd=0.0, cap_usd=5), route="local")
    assert spend_figure(view) is None
    assert apis_text(view) == ""
