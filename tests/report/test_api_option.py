"""An API of run.toml is one of the ways to be done sooner, with its bill; without one none is made up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.report.api_option import api_option, with_api
from backend.report.compare import compare_view
from backend.report.compare_options import Assumed
from backend.report.options import LET_IT_RUN, Option, in_time
from backend.report.what_if import Changes
from backend.run_dir import RunDir
from tests.made_comparison import make_compared
from tests.made_forecast import two_datasets, write_forecast
from tests.made_run import holding_lock, make_run


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDir]:
    """With an API that has prices and a slower one without."""
    made = make_compared(tmp_path)
    with holding_lock(made, time.time()):
        yield made


def offer(run: RunDir) -> Option | None:
    return api_option(compare_view(run, time.time(), Assumed()))


def test_the_fastest_api_of_the_run_is_offered_with_its_bill_and_its_model(run: RunDir) -> None:
    found = offer(run)
    assert found is not None
    assert found.name == "Send the rest to fast"
    assert found.changes is None
    assert found.prices[0].startswith("$")
    assert found.prices[1].startswith("answers of ")


def test_without_an_api_in_the_run_none_is_offered(tmp_path: Path) -> None:
    made = make_run(tmp_path)
    write_forecast(made, two_datasets(), time.time())
    assert offer(made) is None


def test_it_is_ranked_among_the_others_and_judged_by_the_deadline(run: RunDir) -> None:
    found = offer(run)
    assert found is not None
    soon = Option("Fewer samples", Changes(concurrency=1), found.remaining, ())
    stay = Option(LET_IT_RUN, Changes(), type(found.remaining)(1e6, 2e6, 3e6), ())
    ways = with_api([in_time(soon, 1e9), in_time(stay, 10.0)], found, 1e9)
    assert [one.name for one in ways][-1] == LET_IT_RUN
    assert next(one for one in ways if one.changes is None).makes_it is True
    assert with_api([], found, None) == ()
    assert with_api([stay], None, None) == (stay,)
