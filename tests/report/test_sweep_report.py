"""What is told of sweeps: in sentences, rows, a chart and JSON."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from backend import sweeps
from backend.config import load
from backend.report.status import read_status, to_json
from backend.report.sweep import (
    HEAD,
    SHORT_HEAD,
    UNTOLD,
    curve_sentences,
    level_rows,
    progress_sentence,
    read_sweep,
    short_rows,
    sweep_sentence,
    what_it_changes,
)
from backend.report.sweep_chart import sweep_figure
from backend.report.sweep_json import to_dict
from backend.run_dir import RunDir, open_state
from backend.sweeps import Sweep, SweepLevel, SweepProgress, SweepState
from tests.forecast.made_observation import dataset, observation, steady
from tests.made_forecast import status_of, write_forecast
from tests.made_run import beat, holding_lock, make_run

STORY = {1: 62.0, 4: 207.0, 8: 370.0, 16: 385.0, 32: 393.0, 48: 409.0}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return make_run(tmp_path)


@pytest.fixture
def con(run: RunDir) -> Iterator[sqlite3.Connection]:
    with closing(open_state(run)) as con:
        sweeps.create_tables(con)
        yield con


def write(con: sqlite3.Connection, speeds: Mapping[int, float], state: SweepState, reason: str | None = None) -> None:
    sweep_id = sweeps.begin(con, at=1.0, who="me", asked=list(STORY), level_limit_s=60, replicas=1)
    for level, speed in speeds.items():
        made = SweepLevel(
            concurrency=level, tokens_per_s=speed, half_width_tokens_per_s=speed / 50, known=True, measured_s=31.0
        )
        sweeps.add_level(con, sweep_id, made)
    sweeps.end(con, sweep_id, state, reason, 2.0)


def forecast_made(run: RunDir) -> None:
    """A run at 8 in flight with a long way to go."""
    alpha = dataset("alpha", prompts=20_000, in_flight_tokens=[300.0] * 8)
    seen = observation([alpha], steady(370.0, running=8), concurrency=8, speed_curve=None)
    now = time.time()
    beat(run, status_of(seen), now)
    write_forecast(run, seen, now)


def told(run: RunDir, **more: Any) -> Any:
    return read_sweep(run, read_status(run, time.time(), counted=False), load(run.config), **more)


def test_a_run_that_was_never_swept_says_so(run: RunDir) -> None:
    view = told(run)
    assert "was never swept" in sweep_sentence(view)
    assert curve_sentences(view) == []
    assert to_dict(view)["sweep"] is None


def test_the_knee_is_the_storys_and_the_recommendation_says_what_it_changes(run: RunDir, con: sqlite3.Connection) -> None:
    write(con, STORY, SweepState.FINISHED)
    assert curve_sentences(told(run))[1] == UNTOLD
    forecast_made(run)

    view = told(run)
    knee, recommended, rising = curve_sentences(view)
    assert sweep_sentence(view) == "6 levels measured on 1 replica."
    assert knee == "Knee: 8 in flight, the fewest that make 90 % of the best speed (370 of 409 tokens/s)."
    assert rising == "The highest level is the fastest by more than 3 %: higher ones may be faster still."
    assert recommended.startswith("Recommended: 48 in flight. The run would end ")
    assert "sooner than with 8: in about" in recommended
    assert recommended.endswith("Each request would make 8.5 tokens/s, now 46.2.")
    assert what_it_changes(view, 8).startswith("That is what it is: the run ends in about ")
    assert what_it_changes(view, 999) == ""
    assert told(run, recommending=False).recommendation is None


def test_while_another_sweep_runs_what_follows_is_called_the_former_ones(run: RunDir, con: sqlite3.Connection) -> None:
    write(con, {1: 62.0, 8: 370.0, 16: 375.0}, SweepState.FINISHED)
    sweeps.begin(con, at=3.0, who="me", asked=[1], level_limit_s=60, replicas=1)
    with holding_lock(run, time.time()):
        view = told(run)
    sentences = curve_sentences(view)

    assert view.is_running
    assert sentences[0].startswith("Of the sweep before this one. Knee: 8 in flight")
    assert len(sentences) == 2


def test_a_sweep_whose_supervisor_is_dead_does_not_run_any_more(run: RunDir, con: sqlite3.Connection) -> None:
    sweeps.begin(con, at=3.0, who="me", asked=[1, 4], level_limit_s=60, replicas=1)
    run.lock.touch()
    view = told(run)

    assert not view.is_running
    assert sweep_sentence(view) == "The last sweep was interrupted: its supervisor ended. 0 of its 2 levels are measured."


def test_a_curve_for_more_replicas_than_were_measured_names_its_assumption(run: RunDir, con: sqlite3.Connection) -> None:
    write(con, STORY, SweepState.FINISHED)
    settings = load(run.config)
    four = settings.model_copy(update={"engine": settings.engine.model_copy(update={"replicas": 4})})
    view = read_sweep(run, read_status(run, time.time()), four)

    assert curve_sentences(view)[-1] == (
        "Measured on 1 replica, reckoned for 4: one more replica brings 100% of what the first does (assumed, until sweeps "
        "with several numbers of replicas tell)."
    )
    assert view.knee == 32


@pytest.mark.parametrize(
    ("state", "reason", "words"),
    [
        (
            SweepState.CANCELLED,
            "me cancelled it",
            "The last sweep was cancelled: me cancelled it. 2 of its 6 levels are measured.",
        ),
        (SweepState.ENDED, "the run stopped", "The last sweep could not go on: the run stopped. 2 of its"),
        (SweepState.INTERRUPTED, None, "The last sweep was interrupted. 2 of its 6 levels"),
    ],
)
def test_why_a_sweep_ended_early_is_told(
    run: RunDir, con: sqlite3.Connection, state: SweepState, reason: str | None, words: str
) -> None:
    write(con, {1: 62.0, 4: 207.0}, state, reason)
    assert sweep_sentence(told(run)).startswith(words)


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (None, "The sweep begins…"),
        (
            SweepProgress(level=4, stage="lowering", in_flight=37, since=1.0),
            "Waits until 37 requests in flight are 4 (level 2 of 6).",
        ),
        (SweepProgress(level=4, stage="filling", in_flight=2, since=1.0), "Starts requests until 4 are in flight"),
        (SweepProgress(level=8, stage="measuring", in_flight=8, since=1.0), "Measures 8 in flight (level 3 of 6)…"),
        (
            SweepProgress(level=8, stage="measuring", in_flight=8, since=1.0, tokens_per_s=368.4, half_width_tokens_per_s=14.7),
            "Measures 8 in flight (level 3 of 6): 368 tokens/s so far, ± 4.0%.",
        ),
    ],
)
def test_what_a_sweep_does_now_is_told(progress: SweepProgress | None, words: str) -> None:
    sweep = Sweep(
        id=1, at=1.0, who="me", source=None, asked=tuple(STORY), level_limit_s=60, replicas=1, state=SweepState.RUNNING,
        progress=progress,
    )  # fmt: skip
    assert progress_sentence(sweep).startswith(words)


def test_what_is_not_known_of_a_level_is_a_dash_and_short_times_are_milliseconds() -> None:
    bare = SweepLevel(concurrency=8, tokens_per_s=370.0)
    whole = SweepLevel(
        concurrency=16, tokens_per_s=38.5, half_width_tokens_per_s=1.0, known=False, measured_s=120.0, running=15.9,
        first_token_s=0.045, token_usage=0.5, context_tokens=1234.0,
    )  # fmt: skip
    rows = level_rows([bare, whole])

    assert len(rows[0]) == len(HEAD)
    assert rows[0] == ["8", "370", "–", "46.2", "–", "–", "–", "–", "–"]
    assert rows[1] == ["16", "38.5", "2.6%", "2.4", "45 ms", "15.9", "50%", "1,234", "2 min 00 s, time up"]
    short = short_rows([bare, whole])
    assert len(short[0]) == len(SHORT_HEAD)
    assert short[1] == ["16", "38.5 ± 2.6%", "2.4", "45 ms", "50%, 1,234 a request", "2 min 00 s, time up"]


def test_the_json_holds_what_forecasts_use_and_is_plain(run: RunDir, con: sqlite3.Connection) -> None:
    write(con, STORY, SweepState.FINISHED)
    forecast_made(run)
    read = json.loads(to_json(to_dict(told(run))))

    assert read["curve"] == [[float(n), speed] for n, speed in STORY.items()]
    assert (read["knee"], read["recommended"], read["concurrency"]) == (8, 48, 8)
    assert read["sweep"]["levels"][2]["tokens_per_s_a_request"] == 46.25
    assert [option["concurrency"] for option in read["options"]][:3] == [8, 11, 16]


def test_the_chart_marks_knee_and_recommendation_on_a_scale_of_ratios() -> None:
    levels = tuple(SweepLevel(concurrency=n, tokens_per_s=speed, half_width_tokens_per_s=3.0) for n, speed in STORY.items())
    figure = sweep_figure(levels, subtitle="s", knee=8, recommended=39)

    whole, each = figure.data
    assert list(whole.x) == [math.log2(n) for n in STORY]
    assert list(whole.y) == list(STORY.values())
    assert each.y[2] == 46.25
    assert list(figure.layout.xaxis.ticktext) == ["1", "4", "8", "16", "32", "48"]
    words = [a.text for a in figure.layout.annotations]
    assert "8: knee" in words
    assert "39: recommended" in words
    assert [line.x0 for line in figure.layout.shapes] == [3.0, math.log2(39)]
    same = sweep_figure(levels, subtitle="s", knee=8, recommended=8)
    assert "8: knee, recommended" in [a.text for a in same.layout.annotations]
