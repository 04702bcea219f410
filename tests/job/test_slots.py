"""Slots against a small server: always as many in flight as asked, each prompt one row, whatever servers do meanwhile."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from backend.config import RunConfig
from backend.job.in_flight import InFlightJournal
from backend.job.ledger import Ledger, LedgerError
from backend.job.replica import Endpoint
from backend.job.slots import SPARE_ANSWERS, Slots
from backend.records import Prompt, Row
from backend.rows import row_from_record
from backend.run_dir import RunDir, open_ledger
from tests.job.made_job import make_config, make_run_dir, make_runners

Reply = Callable[[dict[str, Any]], Awaitable[web.Response]]


def answered(text: str = "four") -> web.Response:
    choice = {
        "message": {"content": text},
        "finish_reason": "stop",
        "response_token_ids": [5, 6, 3],
        "prompt_token_ids": [1],
        "matched_stop": 3,
    }
    return web.json_response({"choices": [choice], "model": "m"})


def failed(status: int, words: str, **headers: str) -> web.Response:
    return web.json_response({"message": words}, status=status, headers=headers)


class Server:
    """Answers at once, or as `reply` says; knows what it was asked."""

    def __init__(self) -> None:
        self.reply: Reply | None = None
        self.prompts: list[str] = []
        self.rids: list[str] = []
        self.aborted: list[str] = []
        self.open = 0
        self.most_open = 0
        self.gate = asyncio.Event()
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/abort_request", self._abort)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()

    async def stop(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def endpoint(self, replica: str = "0", launch: str = "first") -> Endpoint:
        assert self._runner is not None
        return Endpoint(replica, f"http://127.0.0.1:{self._runner.addresses[0][1]}", None, launch, owned=True)

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.prompts.append(body["messages"][-1]["content"])
        self.rids.append(body["rid"])
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await asyncio.sleep(0.005)
            return await self.reply(body) if self.reply else answered()
        finally:
            self.open -= 1

    async def _abort(self, request: web.Request) -> web.Response:
        self.aborted.append((await request.json())["rid"])
        return web.Response()

    async def hold(self, _: dict[str, Any]) -> web.Response:
        """Answers once `gate` is set."""
        await self.gate.wait()
        return answered()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return make_run_dir(tmp_path)


@asynccontextmanager
async def running(run: RunDir, config: RunConfig, *endpoints: Endpoint) -> AsyncIterator[Slots]:
    """Slots at work on this run."""
    ledger = Ledger.open(run)
    session = aiohttp.ClientSession()
    journal = InFlightJournal(run.in_flight)
    slots = Slots(
        driver=config.driver,
        runners=make_runners(config, ledger),
        ledger=ledger,
        journal=journal,
        session=session,
        model="m",
        now=time.time,
        concurrency=config.generation.concurrency,
        order=[dataset.name for dataset in config.datasets],
    )
    slots.set_endpoints(endpoints)
    tasks = [asyncio.create_task(slots.run()), asyncio.create_task(slots.read_ahead())]
    try:
        yield slots
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await slots.close()
        journal.close()
        await session.close()
        await ledger.close()


def make(folder: Path, prompts: int | Sequence[Any], *, concurrency: int = 4, **driver: Any) -> RunConfig:
    items = [f"p{n}" for n in range(prompts)] if isinstance(prompts, int) else prompts
    quick = {"retry_backoff_s": 0.01, "retry_backoff_max_s": 0.05, **driver}
    return make_config(folder, {"A": items}, generation={"concurrency": concurrency}, driver=quick)


async def until(condition: Callable[[], Any], what: str = "") -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, what or "not seen"
        await asyncio.sleep(0.005)


async def finished(slots: Slots, name: str = "A") -> None:
    runner = slots.runners[name]
    await until(lambda: runner.exhausted and not slots.requests, "not finished")


def rows_of(run: RunDir) -> list[Row]:
    with closing(open_ledger(run, read_only=True)) as con:
        return [row_from_record(dict(record)) for record in con.execute("SELECT * FROM open_rows")]


async def test_every_prompt_becomes_one_row_and_the_slots_stay_full(tmp_path: Path, run: RunDir, server: Server) -> None:
    async with running(run, make(tmp_path, 50), server.endpoint()) as slots:
        await finished(slots)
        assert slots.tally.finished == 50
    assert Counter(row.sample_id for row in rows_of(run)) == {f"A-{n}": 1 for n in range(50)}
    assert server.most_open == 4
    assert len(set(server.rids)) == 50
    assert {len(rid) for rid in server.rids} == {32}
    assert InFlightJournal(run.in_flight).requests() == {}


async def test_nothing_is_sent_before_a_server_is_ready(tmp_path: Path, run: RunDir, server: Server) -> None:
    async with running(run, make(tmp_path, 3)) as slots:
        await until(lambda: slots.runners["A"].exhausted is False and slots.runners["A"].buffered() == 3)
        assert slots.in_flight() == 0
        slots.set_endpoints([server.endpoint()])
        await finished(slots)
    assert len(rows_of(run)) == 3


async def test_concurrency_changes_while_requests_are_in_flight(tmp_path: Path, run: RunDir, server: Server) -> None:
    server.reply = server.hold
    async with running(run, make(tmp_path, 30), server.endpoint()) as slots:
        await until(lambda: server.open == 4)
        slots.concurrency = 9
        slots.changed()
        await until(lambda: server.open == 9)
        slots.concurrency = 1
        server.gate.set()
        await finished(slots)
    assert len(rows_of(run)) == 30


async def test_the_least_busy_server_gets_the_request(tmp_path: Path, run: RunDir, server: Server) -> None:
    other = Server()
    await other.start()
    server.reply, other.reply = server.hold, other.hold
    async with running(run, make(tmp_path, 8, concurrency=8), server.endpoint(), other.endpoint("1", "other")) as slots:
        await until(lambda: server.open + other.open == 8)
        assert (server.open, other.open) == (4, 4)
        assert {name: tally.in_flight for name, tally in slots.replicas.items()} == {"0": 4, "1": 4}
        server.gate.set()
        other.gate.set()
        await finished(slots)
    await other.stop()


async def test_a_request_cancelled_before_its_first_step_frees_its_slot(tmp_path: Path, run: RunDir, server: Server) -> None:
    async with running(run, make(tmp_path, 2), server.endpoint()) as slots:
        await finished(slots)
        slots.runners["A"].give_back(Prompt("A", 99, "late", ({"role": "user", "content": "late"},)))
        slots._fill()  # the task exists and has not run
        assert slots.in_flight() == 1
        slots.admitting = False
        slots.abort("A")
        await until(lambda: slots.in_flight() == 0)
        assert slots.runners["A"].admission.in_flight == 0
        assert slots.runners["A"].take().sample_id == "late"


async def test_aborted_prompts_keep_their_place_and_are_aborted_at_the_server(
    tmp_path: Path, run: RunDir, server: Server
) -> None:
    server.reply = server.hold
    async with running(run, make(tmp_path, 6), server.endpoint()) as slots:
        await until(lambda: server.open == 4)
        first = list(server.rids)
        slots.admitting = False
        slots.abort("A")
        await until(lambda: slots.in_flight() == 0)
        assert set(server.aborted) == set(first)
        assert slots.runners["A"].retries == 0
        server.gate.set()
        slots.admitting = True
        slots.changed()
        await finished(slots)
    assert Counter(row.sample_id for row in rows_of(run)) == {f"A-{n}": 1 for n in range(6)}
    assert {row.attempt for row in rows_of(run)} == {1}


async def test_the_newest_requests_are_aborted_until_few_enough_are_in_flight(
    tmp_path: Path, run: RunDir, server: Server
) -> None:
    server.reply = server.hold
    async with running(run, make(tmp_path, 8), server.endpoint()) as slots:
        await until(lambda: server.open == 4)
        oldest, rid = next(iter(slots.requests)), server.rids[0]
        slots.concurrency = 1
        slots.abort_newest(1)
        await until(lambda: slots.in_flight() == 1)
        assert list(slots.requests) == [oldest]
        assert len(server.aborted) == 3
        assert rid not in server.aborted
        server.gate.set()
        slots.concurrency = 4
        slots.changed()
        await finished(slots)
    assert Counter(row.sample_id for row in rows_of(run)) == {f"A-{n}": 1 for n in range(8)}


async def test_requests_at_a_server_that_is_gone_are_sent_to_the_next_life_with_new_ids(
    tmp_path: Path, run: RunDir, server: Server
) -> None:
    server.reply = server.hold
    async with running(run, make(tmp_path, 4), server.endpoint(launch="first")) as slots:
        await until(lambda: server.open == 4)
        slots.set_endpoints([])
        await until(lambda: server.open == 0)
        assert slots.in_flight() == 4
        server.gate.set()
        slots.set_endpoints([server.endpoint(launch="second")])
        await finished(slots)
        assert slots.runners["A"].retries == 0
    assert len(set(server.rids)) == 8
    assert {row.server_epoch for row in rows_of(run)} == {"0:second"}
    assert len(rows_of(run)) == 4


async def test_requests_that_a_server_has_forgotten_are_sent_again(tmp_path: Path, run: RunDir, server: Server) -> None:
    server.reply = server.hold
    async with running(run, make(tmp_path, 4), server.endpoint()) as slots:
        await until(lambda: server.open == 4)
        assert slots.send_again("1") == 0
        assert slots.send_again("0") == 4
        await until(lambda: len(server.rids) == 8)
        server.gate.set()
        await finished(slots)
    assert len(rows_of(run)) == 4


async def test_what_fails_for_the_moment_is_tried_again(tmp_path: Path, run: RunDir, server: Server) -> None:
    tries: Counter[str] = Counter()

    async def reply(body: dict[str, Any]) -> web.Response:
        text = body["messages"][-1]["content"]
        tries[text] += 1
        return failed(503, "busy") if tries[text] < 3 else answered()

    server.reply = reply
    async with running(run, make(tmp_path, 5), server.endpoint()) as slots:
        await finished(slots)
        assert slots.runners["A"].retries == 10
        assert (slots.runners["A"].last_retry or (0, ""))[1] == "HTTP 503: busy"
    assert {row.finish_reason for row in rows_of(run)} == {"stop"}


async def test_retries_end_in_a_refused_row_with_the_last_words(tmp_path: Path, run: RunDir, server: Server) -> None:
    async def reply(body: dict[str, Any]) -> web.Response:
        return failed(500, "broken") if body["messages"][-1]["content"] == "p1" else answered()

    server.reply = reply
    async with running(run, make(tmp_path, 3, max_retries=2), server.endpoint()) as slots:
        await finished(slots)
    refused = [row for row in rows_of(run) if row.finish_reason == "rejected"]
    assert [(row.sample_id, row.error) for row in refused] == [
        ("A-1", "given up after 3 tries; the last one: HTTP 500: broken")
    ]


async def test_a_refusal_of_us_is_never_a_refused_prompt(tmp_path: Path, run: RunDir, server: Server) -> None:
    allowed = False

    async def reply(body: dict[str, Any]) -> web.Response:
        return answered() if allowed else failed(401, "Unauthorized")

    server.reply = reply
    async with running(run, make(tmp_path, 4, max_retries=0), server.endpoint()) as slots:
        await until(lambda: len(server.rids) > 12)
        assert slots.tally.denied == "HTTP 401: Unauthorized"
        assert slots.tally.finished == 0
        allowed = True
        await finished(slots)
        assert slots.tally.denied is None
    assert {row.finish_reason for row in rows_of(run)} == {"stop"}


async def test_a_server_that_says_when_to_come_back_is_given_that_time(tmp_path: Path, run: RunDir, server: Server) -> None:
    async def reply(body: dict[str, Any]) -> web.Response:
        return failed(429, "slowly", **{"Retry-After": "0.3"}) if len(server.rids) == 1 else answered()

    server.reply = reply
    began = time.monotonic()
    async with running(run, make(tmp_path, 1), server.endpoint()) as slots:
        await finished(slots)
    assert time.monotonic() - began >= 0.3
    assert len(server.rids) == 2


@pytest.mark.parametrize("status", [503, 401])
async def test_a_request_that_waits_for_its_next_try_ends_when_its_dataset_is_to_drain(
    tmp_path: Path, run: RunDir, server: Server, status: int
) -> None:
    async def reply(body: dict[str, Any]) -> web.Response:
        return failed(status, "not now", **{"Retry-After": "3600"})

    server.reply = reply
    async with running(run, make(tmp_path, 1, retry_backoff_max_s=3600), server.endpoint()) as slots:
        await until(lambda: server.rids and not server.open)
        slots.runners["A"].open = False

        def ended() -> bool:
            slots.abort("A", only_waiting=True)
            return slots.in_flight() == 0

        await until(ended)
    assert rows_of(run) == []


async def test_an_answer_waits_for_the_disk_however_long_and_is_not_made_again(
    tmp_path: Path, run: RunDir, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = True
    append = Ledger.append

    def refuse(self: Ledger, row: Row) -> asyncio.Future[None]:
        if full:
            raise LedgerError("the disk is full")
        return append(self, row)

    monkeypatch.setattr(Ledger, "append", refuse)
    async with running(run, make(tmp_path, 2), server.endpoint()) as slots:
        await until(lambda: slots.tally.store_failure is not None)
        assert slots.tally.store_failure == "the disk is full"
        slots.abort("A")
        assert len(slots.requests) == 2
        full = False
        await finished(slots)
        assert slots.tally.store_failure is None
    assert len(server.rids) == 2
    assert len(rows_of(run)) == 2


async def test_a_full_disk_does_not_keep_the_supervisor_from_leaving(
    tmp_path: Path, run: RunDir, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(ledger: Ledger, row: Row) -> asyncio.Future[None]:
        raise LedgerError("the disk is full")

    monkeypatch.setattr(Ledger, "append", refuse)
    async with running(run, make(tmp_path, 2), server.endpoint()) as slots:
        await until(lambda: slots.tally.store_failure is not None)
        slots.admitting = False
        await asyncio.wait_for(slots.close(store_limit_s=0.1), 5)
        assert not slots.requests
    assert rows_of(run) == []


async def test_a_request_that_is_to_be_sent_again_ends_all_the_same_when_the_supervisor_leaves(
    tmp_path: Path, run: RunDir, server: Server
) -> None:
    server.reply = server.hold
    async with running(run, make(tmp_path, 4), server.endpoint()) as slots:
        await until(lambda: server.open == 4)
        slots.set_endpoints([])
        await asyncio.wait_for(slots.close(), 5)
        assert not slots.requests


async def test_a_slot_is_free_once_its_request_is_answered_but_answers_do_not_pile_up(
    tmp_path: Path, run: RunDir, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, disk_works = Ledger.append, asyncio.Event()

    async def wait(ledger: Ledger, row: Row) -> None:
        await disk_works.wait()
        await append(ledger, row)

    monkeypatch.setattr(Ledger, "append", lambda ledger, row: asyncio.ensure_future(wait(ledger, row)))
    async with running(run, make(tmp_path, 200), server.endpoint()) as slots:
        await until(lambda: slots.runners["A"].storing >= 4 + SPARE_ANSWERS and not slots.in_flight())
        assert slots.tally.finished == 0
        assert 4 + SPARE_ANSWERS <= slots.runners["A"].storing <= 4 + 4 + SPARE_ANSWERS
        assert slots.runners["A"].admission.in_flight == slots.runners["A"].storing  # the limits count them
        disk_works.set()
        await finished(slots)
        assert slots.runners["A"].storing == 0
    assert server.most_open == 4
    assert len(rows_of(run)) == 200


async def test_an_error_of_our_own_fails_the_dataset_and_not_the_others(
    tmp_path: Path, run: RunDir, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(tmp_path, {"A": ["p"], "B": ["q"]}, generation={"concurrency": 1})

    def refuse(prompt: Any, *_: Any, **__: Any) -> bytes:
        if prompt.dataset == "A":
            raise ZeroDivisionError("of our own")
        return json.dumps({"messages": list(prompt.messages), "rid": "x" * 32}).encode()

    monkeypatch.setattr("backend.job.courier.request_body", refuse)
    async with running(run, config, server.endpoint()) as slots:
        await until(lambda: slots.runners["A"].fault is not None)
        slots.runners["A"].open = False
        slots.changed()
        await finished(slots, "B")
        assert "logs/supervisor.log" in (slots.runners["A"].fault or "")
    assert [row.dataset for row in rows_of(run)] == ["B"]
