"""What a supervisor leaves in state.sqlite, and that losing a write costs history only."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from backend.heartbeat import read_heartbeat
from backend.job.state_store import StateStore
from backend.records import DatasetState, DatasetStatus, Event, IntentAction, JobStatus, RunPhase, Severity
from backend.run_dir import RunDir, open_state
from tests.job.made_job import make_run_dir

STATUS = JobStatus(
    phase=RunPhase.RUNNING, concurrency=4, in_flight=2, datasets=(DatasetStatus("A", DatasetState.RUNNING),), replicas=(),
    order=("A",), tokens_per_s=1.5,
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return make_run_dir(tmp_path)


@pytest.fixture
async def store(run: RunDir) -> AsyncIterator[StateStore]:
    store = StateStore(run)
    yield store
    store.close()


def write_intent(run: RunDir, subject: str, action: str, value: str) -> None:
    with closing(open_state(run)) as con:
        con.execute(
            "INSERT INTO intents (at, who, subject, action, value, token) VALUES (1.0, 'me', ?, ?, ?, ?)",
            (subject, action, value, str(time.monotonic_ns())),
        )


def answers(run: RunDir) -> list[tuple[int, int, str]]:
    with closing(open_state(run, read_only=True)) as con:
        return [(r["intent_id"], r["accepted"], r["message"]) for r in con.execute("SELECT * FROM intent_answers")]


async def test_a_heartbeat_is_read_back_as_it_was_written(run: RunDir, store: StateStore) -> None:
    for at in (1.0, 2.0):
        assert await store.heartbeat(at=at, pid=7, life=3, status=STATUS) is None
    heartbeat = read_heartbeat(run)
    assert heartbeat is not None
    assert (heartbeat.at, heartbeat.pid, heartbeat.life, heartbeat.status) == (2.0, 7, 3, STATUS)


async def test_events_keep_their_order_and_their_details(run: RunDir, store: StateStore) -> None:
    events = [Event(float(n), f"kind.{n}", "run", "words", Severity.WARNING, details={"n": n}) for n in range(5)]
    assert await store.record(events)
    with closing(open_state(run, read_only=True)) as con:
        rows = con.execute("SELECT kind, severity, details FROM events ORDER BY id").fetchall()
    assert [tuple(row) for row in rows] == [(f"kind.{n}", "warning", f'{{"n": {n}}}') for n in range(5)]


async def test_intents_are_new_until_they_are_answered(run: RunDir, store: StateStore) -> None:
    write_intent(run, "dataset:A", "state", '{"want": "paused"}')
    (intent,) = await store.new_intents()
    assert (intent.subject, intent.action, intent.value, intent.who) == (
        "dataset:A", IntentAction.STATE, {"want": "paused"}, "me",
    )  # fmt: skip
    assert len(await store.new_intents()) == 1
    assert intent.id is not None
    await store.answer(intent.id, at=2.0, accepted=True, message="A will pause.")
    assert await store.new_intents() == []
    assert answers(run) == [(intent.id, 1, "A will pause.")]


@pytest.mark.parametrize(("action", "value"), [("dance", "{}"), ("state", "no json"), ("state", "[1]"), ("state", "null")])
async def test_an_intent_that_cannot_be_read_is_refused_in_words_and_blocks_no_other(
    run: RunDir, store: StateStore, action: str, value: str
) -> None:
    write_intent(run, "run", action, value)
    write_intent(run, "run", "state", '{"want": "stopped"}')
    assert [intent.value for intent in await store.new_intents()] == [{"want": "stopped"}]
    assert [(accepted, message[:24]) for _, accepted, message in answers(run)] == [(0, "It cannot be understood:")]


async def test_a_write_that_fails_says_why_and_the_next_one_works(run: RunDir, store: StateStore) -> None:
    def fail(con: sqlite3.Connection) -> None:
        con.execute("INSERT INTO nowhere VALUES (1)")

    await store.run(fail)
    with closing(sqlite3.connect(run.state)) as con:
        con.execute("ALTER TABLE heartbeat RENAME TO elsewhere")
        con.execute("ALTER TABLE events RENAME TO elsewhen")
    assert "no such table" in (await store.heartbeat(at=1.0, pid=1, life=1, status=STATUS) or "")
    assert not await store.record([Event(1.0, "k", "run", "m")])
    with closing(sqlite3.connect(run.state)) as con:
        con.execute("ALTER TABLE elsewhere RENAME TO heartbeat")
        con.execute("ALTER TABLE elsewhen RENAME TO events")
    assert await store.heartbeat(at=1.0, pid=1, life=1, status=STATUS) is None
    assert await store.record([Event(1.0, "k", "run", "m")])


async def test_a_failure_that_goes_on_is_logged_once_a_kind_and_not_each_second(
    run: RunDir, store: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(sqlite3.connect(run.state)) as con:
        con.execute("ALTER TABLE heartbeat RENAME TO elsewhere")
    for _ in range(8):
        await store.heartbeat(at=1.0, pid=1, life=1, status=STATUS)
        await store.new_intents()
    assert len(caplog.records) == 1
