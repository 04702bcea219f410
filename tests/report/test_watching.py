"""Those who watch are told one run: its end while it works, its datasets' ends, and a forecast read once for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.report.ending import EndKind
from backend.report.live import LiveError
from backend.report.watching import FORECAST_KEPT_S, Watching
from backend.run_dir import RunDir
from tests.made_forecast import status_of, two_datasets, write_finished, write_forecast
from tests.made_run import beat, holding_lock, make_run, write_event

NOW = 1_796_130_120.0
SEEN = two_datasets()


@pytest.fixture
def at_work(tmp_path: Path) -> Iterator[RunDir]:
    """A run of an hour, observed as SEEN."""
    run = make_run(tmp_path)
    write_finished(run, SEEN, NOW)
    beat(run, status_of(SEEN), NOW)
    with holding_lock(run, NOW):
        yield run


def test_a_run_at_work_has_its_end_and_its_datasets_ends(at_work: RunDir) -> None:
    said = write_forecast(at_work, SEEN, NOW)
    seen = Watching(at_work, lambda: NOW).now()
    assert seen.ending.kind is EndKind.GOING
    assert said.forecast.remaining is not None
    assert seen.ending.span is not None
    assert seen.ending.span.p90 == NOW + said.forecast.remaining.p90
    assert list(seen.dataset_ends) == ["alpha", "beta"]
    assert seen.dataset_ends["alpha"].p50 < seen.dataset_ends["beta"].p50


def test_no_end_of_a_dataset_is_told_while_the_run_does_not_work(at_work: RunDir) -> None:
    write_forecast(at_work, SEEN, NOW, active=False)
    seen = Watching(at_work, lambda: NOW).now()
    assert seen.ending.kind is EndKind.STANDING
    assert seen.dataset_ends == {}


def test_the_forecast_holds_no_words_of_events_and_is_read_once_for_a_while(at_work: RunDir) -> None:
    write_event(at_work, "the password is swordfish", NOW - 60, severity="warning")
    write_forecast(at_work, SEEN, NOW, earlier=[(600, 1, "alpha: token_budget none → 5M", 2.0)])
    clock = [NOW]
    watching = Watching(at_work, lambda: clock[0])
    first = watching.forecast()
    assert first.events == first.changes == ()
    assert first.band is not None
    clock[0] += FORECAST_KEPT_S - 1
    assert watching.forecast() is first
    clock[0] += 2
    assert watching.forecast() is not first


def test_a_run_that_cannot_be_read_is_one_kind_of_error(at_work: RunDir) -> None:
    at_work.config.write_text("name = ")
    watching = Watching(at_work, lambda: NOW)
    for ask in (watching.public, watching.now, watching.forecast):
        with pytest.raises(LiveError):
            ask()
