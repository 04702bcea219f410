from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backend.heartbeat import SupervisorState
from backend.records import EngineState, ReplicaStatus
from backend.report.engine import command_line, engine_figures, engine_sentence, is_wanted, replica_load
from backend.report.status import read_status
from backend.report.views import EventView, RunView
from backend.telemetry_store import Series
from tests.made_run import make_run


@pytest.fixture
def view(tmp_path: Path) -> RunView:
    return read_status(make_run(tmp_path), 1.0)


def with_replicas(view: RunView, *states: EngineState, supervisor: SupervisorState = SupervisorState.ALIVE) -> RunView:
    replicas = tuple(ReplicaStatus(str(i), state, version="0.5.23") for i, state in enumerate(states))
    return replace(view, replicas=replicas, supervisor=replace(view.supervisor, state=supervisor), engine_kind="local")


def series(**values: tuple[float | None, ...]) -> Series:
    names = (
        "decode_tokens_per_s", "prefill_tokens_per_s", "running", "queued", "token_usage", "retracted_per_s",
        "cache_hit_rate", "spec_accept_length",
    )  # fmt: skip
    return Series(1, (10, 11), {name: values.get(name, (None, None)) for name in names})


def test_each_state_has_its_sentence(view: RunView) -> None:
    assert engine_sentence(view) == "A simulated engine, no model answers. It starts with the run."
    assert "Ready with SGLang 0.5.23." in engine_sentence(with_replicas(view, EngineState.READY))
    both = with_replicas(view, EngineState.READY, EngineState.READY)
    assert "All 2 replicas are ready" in engine_sentence(both)
    mixed = with_replicas(view, EngineState.READY, EngineState.STARTING, EngineState.READY)
    assert "Of 3 replicas 2 ready, 1 starting" in engine_sentence(mixed)
    dead = with_replicas(view, EngineState.READY, supervisor=SupervisorState.DEAD)
    assert "Nobody watches it" in engine_sentence(dead)
    left = with_replicas(view, EngineState.STOPPED, supervisor=SupervisorState.LEFT)
    assert "stopped" in engine_sentence(left)
    silent = with_replicas(view, EngineState.READY, supervisor=SupervisorState.NOT_ANSWERING)
    assert "does not answer" in engine_sentence(silent)


def test_the_last_wish_says_whether_the_engine_is_meant_to_run(view: RunView) -> None:
    ready, stopped = with_replicas(view, EngineState.READY), with_replicas(view, EngineState.STOPPED)
    assert is_wanted(ready, None)
    assert not is_wanted(stopped, None)
    assert not is_wanted(ready, "stopped")
    assert is_wanted(stopped, "running")


def test_a_command_is_shown_as_a_shell_takes_it() -> None:
    assert command_line(ReplicaStatus("0", EngineState.READY, command=("python", "-m", "a b"))) == "python -m 'a b'"
    assert command_line(ReplicaStatus("0", EngineState.READY)) is None


def test_charts_have_a_line_a_replica_and_leave_out_what_no_engine_knows() -> None:
    lines = {"0": series(decode_tokens_per_s=(1, 2)), "1": series(decode_tokens_per_s=(3, 4))}
    figures = engine_figures(lines, [], since=0, until=20)
    assert [trace.name for trace in figures["decode_tokens_per_s"].data] == ["replica 0", "replica 1"]
    assert "spec_accept_length" not in figures
    assert "spec_accept_length" in engine_figures({"0": series(spec_accept_length=(2.5, None))}, [], since=0, until=20)
    assert engine_figures({}, [], since=0, until=20) == {}


def test_requests_are_added_up_over_the_replicas_that_tell_them() -> None:
    lines = {"0": series(running=(5, 6), queued=(0, 1)), "1": series(running=(7, None))}
    running, queued = engine_figures(lines, [], since=0, until=20)["running"].data
    assert (list(running.y), list(queued.y)) == ([12, 6], [0, 1])


def test_shares_are_drawn_in_percent() -> None:
    figure = engine_figures({"0": series(token_usage=(0.5, 0.75))}, [], since=0, until=20)["token_usage"]
    assert list(figure.data[0].y) == [50, 75]


def test_only_what_happened_to_the_engine_is_marked() -> None:
    events = [
        EventView(15, "engine.ended", "engine:0", "Replica 0: out of memory <b>", "error", "supervisor"),
        EventView(16, "run.started", "run", "x", "info", "supervisor"),
    ]
    figure = engine_figures({"0": series(running=(1, 1))}, events, since=0, until=20)["decode_tokens_per_s"]
    assert [a.text for a in figure.layout.annotations] == ["ended"]


def test_the_load_of_a_replica_is_told_as_far_as_it_is_known() -> None:
    newest = {"0": {"running": 96.0, "queued": 2.0, "token_usage": 0.714}, "1": {"running": None, "queued": None}}
    assert replica_load(newest, "0") == "96 running, 2 queued, KV 71%"
    assert replica_load(newest, "1") == "– running, – queued, KV –"
    assert replica_load(newest, "2") == "–"
