"""Wishes are remembered before they are answered, and a redo is carried out once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from backend.config import load
from backend.control.intents import await_answer, want_dataset, want_redo, want_run
from backend.job import wishes
from backend.job.group_commit import LedgerError
from backend.job.ledger import Ledger
from backend.job.state_store import StateStore
from backend.job.wish_keeper import WishKeeper
from backend.job.wishes import Want
from backend.records import Event, Intent, Outcome
from backend.run_dir import RunDir, open_state
from tests.made_run import make_run


class Life:
    """One life of a supervisor, as far as wishes go."""

    def __init__(self, keeper: WishKeeper, ledger: Ledger, events: list[Event], changes: list[Intent]) -> None:
        self.keeper, self.ledger, self.events, self.changes = keeper, ledger, events, changes


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return make_run(tmp_path)


@asynccontextmanager
async def life(run: RunDir) -> AsyncIterator[Life]:
    ledger, store = Ledger.open(run), StateStore(run)
    events: list[Event] = []
    changes: list[Intent] = []
    yield Life(
        WishKeeper(load(run.config), ledger, store, emit=events.append, on_change=changes.append), ledger, events, changes
    )
    await ledger.close()
    store.close()


def answer_of(run: RunDir, intent: Intent) -> tuple[bool, str] | None:
    with closing(open_state(run, read_only=True)) as con:
        row = con.execute("SELECT accepted, message FROM intent_answers WHERE intent_id = ?", (intent.id,)).fetchone()
    return None if row is None else (bool(row["accepted"]), row["message"])


async def test_an_intent_is_kept_told_and_answered(run: RunDir) -> None:
    intent = want_dataset(run, "alpha", "paused", "me")
    async with life(run) as one:
        await one.keeper.read()
        assert one.keeper.wishes.datasets["alpha"].want is Want.PAUSED
        assert [event.message for event in one.events] == ["alpha will pause; requests in flight finish."]
        assert [(change.subject, change.who) for change in one.changes] == [("dataset:alpha", "me")]
        assert answer_of(run, intent) == (True, "alpha will pause; requests in flight finish.")
    async with life(run) as another:
        assert another.keeper.wishes.datasets["alpha"].want is Want.PAUSED
        await another.keeper.read()
        assert another.events == []


async def test_an_intent_that_cannot_be_is_refused_in_words_and_forgotten(run: RunDir) -> None:
    intent = want_dataset(run, "alpha", "paused", "me")
    with closing(open_state(run)) as con:
        con.execute("UPDATE intents SET subject = 'dataset:C'")
    async with life(run) as one:
        await one.keeper.read()
        assert one.events == one.changes == []
        assert answer_of(run, intent) == (False, "There is no 'dataset:C' in this run; its datasets are alpha, beta.")
    async with life(run) as another:
        assert another.ledger.accepted_intents() == []


async def test_an_intent_that_cannot_be_remembered_is_not_accepted(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    intent = want_dataset(run, "alpha", "killed", "me")

    def full(*_: object) -> asyncio.Future[None]:
        raise LedgerError("The disk is full.")

    async with life(run) as one:
        monkeypatch.setattr(Ledger, "record_intent", full)
        await one.keeper.read()
        assert one.keeper.wishes.datasets["alpha"].want is Want.RUNNING
        assert answer_of(run, intent) == (False, "It could not be remembered: The disk is full.")


async def test_losing_the_state_database_loses_no_accepted_intent(run: RunDir) -> None:
    want_dataset(run, "beta", "killed", "me")
    async with life(run) as one:
        await one.keeper.read()
    for path in run.root.glob("state.sqlite*"):
        path.unlink()
    async with life(run) as another:
        assert another.keeper.wishes.datasets["beta"].want is Want.KILLED


async def test_a_signal_is_for_this_life_only_and_an_intent_for_the_next_as_well(run: RunDir) -> None:
    async with life(run) as one:
        one.keeper.ask_to_stop(now=True)
        assert (one.keeper.wishes.run, one.keeper.wishes.run_now) == (Want.STOPPED, True)
    async with life(run) as another:
        assert another.keeper.wishes.run is Want.RUNNING
        want_run(run, "stopped", "me")
        await another.keeper.read()
    async with life(run) as third:
        assert third.keeper.wishes.run is Want.STOPPED


async def test_an_intent_whose_answer_was_lost_is_answered_and_not_carried_out_again(run: RunDir) -> None:
    paused = want_dataset(run, "alpha", "paused", "me")
    want_dataset(run, "alpha", "running", "me")
    async with life(run) as one:
        await one.keeper.read()
        with closing(open_state(run)) as con:
            con.execute("DELETE FROM intent_answers WHERE intent_id = ?", (paused.id,))
        await one.keeper.read()
        assert one.keeper.wishes.datasets["alpha"].want is Want.RUNNING
        assert answer_of(run, paused) == (True, "alpha will pause; requests in flight finish.")
        assert len(one.changes) == len(one.events) == 2


async def test_a_signal_that_comes_while_an_intent_is_being_remembered_is_not_lost(run: RunDir) -> None:
    want_dataset(run, "alpha", "paused", "me")
    async with life(run) as one:
        reading = asyncio.create_task(one.keeper.read())
        recorded = one.ledger.record_intent

        def signalled(intent: Intent) -> asyncio.Future[None]:
            asyncio.get_running_loop().call_soon(lambda: one.keeper.ask_to_stop(now=False))
            return recorded(intent)

        one.ledger.record_intent = signalled  # type: ignore[method-assign]
        await reading
        assert one.keeper.wishes.run is Want.STOPPED
        assert one.keeper.wishes.datasets["alpha"].want is Want.PAUSED


async def test_a_redo_that_was_carried_out_is_not_repeated_in_the_next_life(run: RunDir) -> None:
    want_redo(run, "alpha", ["empty"], "me")
    want_redo(run, "beta", ["truncated"], "me")
    async with life(run) as one:
        await one.keeper.read()
        await one.keeper.redo_done("alpha", one.keeper.wishes.datasets["alpha"].redo)
        assert one.keeper.wishes.datasets["alpha"].redo == ()
    async with life(run) as another:
        assert another.keeper.wishes.datasets["alpha"].redo == ()
        assert another.keeper.wishes.datasets["beta"].redo == (Outcome.TRUNCATED,)
        want_redo(run, "alpha", ["empty"], "me")
        await another.keeper.read()
        assert another.keeper.wishes.datasets["alpha"].redo == (Outcome.EMPTY,)


async def test_a_redo_asked_while_another_is_carried_out_is_not_lost(run: RunDir) -> None:
    want_redo(run, "alpha", ["empty"], "me")
    async with life(run) as one:
        await one.keeper.read()
        begun = one.keeper.wishes.datasets["alpha"].redo
        want_redo(run, "alpha", ["truncated"], "me")
        await one.keeper.read()
        await one.keeper.redo_done("alpha", begun)
        assert one.keeper.wishes.datasets["alpha"].redo == (Outcome.TRUNCATED,)
    async with life(run) as another:
        assert another.keeper.wishes.datasets["alpha"].redo == (Outcome.TRUNCATED,)


async def test_two_who_read_at_once_take_an_intent_once(run: RunDir) -> None:
    intents = [want_dataset(run, "alpha", want, "me") for want in ("paused", "running", "killed")]
    async with life(run) as one:
        await asyncio.gather(one.keeper.read(), one.keeper.read())
        assert [change.value["want"] for change in one.changes] == ["paused", "running", "killed"]
        assert all(answer is not None and answer[0] for answer in (answer_of(run, intent) for intent in intents))


async def test_an_intent_that_breaks_its_judge_is_refused_and_keeps_no_other_one_waiting(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = wishes.apply

    def broken(now: wishes.Wishes, intent: Intent) -> tuple[wishes.Wishes, str]:
        if intent.subject == "dataset:alpha":
            raise OverflowError
        return apply(now, intent)

    monkeypatch.setattr(wishes, "apply", broken)
    async with life(run) as now:
        first, second = want_dataset(run, "alpha", "paused", "me"), want_dataset(run, "beta", "paused", "me")
        await now.keeper.read()
        assert now.keeper.wishes.datasets["beta"].want is Want.PAUSED
    answers = [await_answer(run, intent, 1.0) for intent in (first, second)]
    assert [answer and answer.accepted for answer in answers] == [False, True]
