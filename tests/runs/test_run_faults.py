"""Each way in which a server goes wrong: what the user reads, and that the run completes exactly or stops rightly.

Faults that can go together share one run, so that the whole takes minutes instead of a quarter of an hour.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from live_run import LiveRun, make_run, write_prompts

from backend.heartbeat import supervisor_words
from backend.job.ports import free_port
from backend.outcomes import outcome_of
from backend.records import DatasetState, EngineState, JobStatus, Outcome, Row, RunPhase
from backend.report.status import read_status
from backend.report.status_text import status_text
from backend.run_dir import open_state
from backend.simulator import tokens
from backend.simulator.faults import Faults, parse_fault
from backend.simulator.generation import parse_chat

NewRun = Callable[..., LiveRun]

CONTENT_FAULTS = {
    "usage-null": 0.3,
    "wrong-usage": 0.3,
    "content-null-length": 0.15,
    "empty-stop": 0.15,
    "unclosed-think": 0.15,
    "loop-text": 0.15,
    "u2028": 0.3,
    "lone-surrogate": 0.3,
    "big-id": 0.3,
    "reject-400": 0.1,
}
NETWORK_FAULTS = {"http-500": 0.05, "http-503": 0.05, "http-429": 0.03, "disconnect": 0.05, "abort-200": 0.1}


def text_of(run: LiveRun) -> str:
    """What `status` prints now."""
    return status_text(read_status(run.run, time.time()))


def start_with_fault(run: LiveRun, name: str, argument: Any = None) -> set[int]:
    """Starts it, and switches the fault on before the first request: nothing depends on how fast this machine is.

    Returns the processes of the server's first life.
    """
    run.start()
    run.pause("A")
    run.wait(lambda s: s.replicas[0].state is EngineState.READY)
    processes = set(run.processes())
    run.fault(name, argument)
    run.resume("A")
    return processes


def struck(row: Row) -> set[str]:
    """The content faults that the simulator's dice give this row's prompt."""
    faults = Faults(seed=0)
    for name, share in CONTENT_FAULTS.items():
        faults.switch_on(parse_fault(name, share))
    prompt = parse_chat(json.loads(row.messages), thinking_default=True).prompt
    return {name for name in CONTENT_FAULTS if faults.strikes_prompt(name, prompt)}


def outcomes(rows: list[Row]) -> Counter[Outcome]:
    return Counter(outcome_of(row) for row in rows)


# -- answers that are odd --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveRun]:
    """A finished run against a server with every fault of an answer at once."""
    folder = tmp_path_factory.mktemp("odd")
    write_prompts(folder / "A.jsonl", 150)
    flags = [f"--fault={name}={share}" for name, share in {**CONTENT_FAULTS, **NETWORK_FAULTS}.items()]
    run = make_run(
        folder, [{"name": "A", "path": "A.jsonl"}], args=["--mean", "300", *flags], generation={"max_new_tokens": 600}
    )
    try:
        run.start()
        run.wait_left()
        yield run
    finally:
        run.cleanup()


@pytest.fixture(scope="module")
def odd_rows(odd: LiveRun) -> list[tuple[Row, set[str]]]:
    return [(row, struck(row)) for row in odd.rows()]


def test_a_run_through_all_odd_answers_finishes_exactly(odd: LiveRun) -> None:
    status = odd.status()
    assert (status.phase, status.exit_code) == (RunPhase.FINISHED, 0)
    odd.check_exact({"A": [f"A-{i}" for i in range(150)]})
    assert odd.kinds()["engine.ended"] == 0


def test_what_fails_for_the_moment_is_sent_again_and_never_kept_as_a_sample(odd: LiveRun) -> None:
    dataset = odd.dataset("A")
    assert dataset.retries > 5
    assert "abort" not in {row.finish_reason for row in odd.rows()}
    assert {row.error for row in odd.rows() if row.finish_reason != "rejected"} == {None}


def test_failing_requests_are_told_once_with_the_words_of_the_last(odd: LiveRun) -> None:
    assert odd.kinds()["dataset.retrying"] == 1
    assert "A: requests fail and are sent again; the last one: " in odd.words("dataset.retrying")


def test_a_refused_prompt_becomes_a_row_with_the_servers_words(odd: LiveRun, odd_rows: list[tuple[Row, set[str]]]) -> None:
    refused = [row for row, faults in odd_rows if "reject-400" in faults]
    assert refused
    assert {row.finish_reason for row in refused} == {"rejected"}
    assert {row.error for row in refused} == {"HTTP 400: The simulator was told to reject this request."}
    assert outcomes(refused) == {Outcome.REJECTED: len(refused)}
    assert odd.dataset("A").rejected == len(refused)
    assert sum(row.finish_reason == "rejected" for row in odd.rows()) == len(refused)
    assert "HTTP 400: The simulator was told to reject this request." in odd.words("dataset.rejects")


def test_no_content_and_length_is_a_truncated_row(odd_rows: list[tuple[Row, set[str]]]) -> None:
    null = [row for row, faults in odd_rows if "content-null-length" in faults and not faults & {"reject-400", "loop-text"}]
    assert null
    assert {(row.finish_reason, row.raw_text) for row in null} == {("length", "")}
    assert outcomes(null) == {Outcome.TRUNCATED: len(null)}


def test_what_the_text_is_worth_is_told_by_its_outcome(odd_rows: list[tuple[Row, set[str]]]) -> None:
    passed_over = {"reject-400", "content-null-length"}
    for fault, before, outcome in (
        ("empty-stop", set(), Outcome.EMPTY),
        ("unclosed-think", {"empty-stop"}, Outcome.THINKING_ONLY),
        ("loop-text", {"empty-stop", "unclosed-think"}, Outcome.DEGENERATE),
    ):
        rows = [row for row, faults in odd_rows if fault in faults and not faults & (passed_over | before)]
        assert rows
        assert outcomes(rows) == {outcome: len(rows)}, fault


def test_tokens_are_counted_by_their_ids_where_usage_is_missing(odd_rows: list[tuple[Row, set[str]]]) -> None:
    rows = [row for row, faults in odd_rows if "usage-null" in faults and "reject-400" not in faults]
    assert rows
    assert all(row.output_ids is not None and row.completion_tokens == len(row.output_ids) for row in rows)
    assert not any(row.tokens_estimated for row in rows)
    assert all(row.prompt_tokens == len(row.prompt_token_ids or ()) for row in rows)


def test_tokens_are_counted_by_their_ids_where_usage_is_wrong(odd_rows: list[tuple[Row, set[str]]]) -> None:
    rows = [row for row, faults in odd_rows if "wrong-usage" in faults and "reject-400" not in faults]
    assert rows
    assert all(row.output_ids is not None and row.completion_tokens == len(row.output_ids) for row in rows)


def test_every_text_is_exactly_what_its_ids_say(odd_rows: list[tuple[Row, set[str]]]) -> None:
    rows = [row for row, faults in odd_rows if not faults & {"reject-400", "content-null-length"}]
    assert all(row.raw_text == tokens.decode(row.output_ids or ()) for row in rows)
    texts = [row.raw_text or "" for row in rows]
    assert any("\u2028" in text and "\x85" in text and "\x00" in text for text in texts)
    assert any("\ud835 and the text goes on." in text for text in texts)


# -- servers that misbehave and work -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rough(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveRun, JobStatus, JobStatus]]:
    """A run whose server is unhealthy under load, forgets its counters, freezes its gauges and floods its output.

    It lasts for some 13 s: rates are known from the second look at the counters on, and that is taken every 5 s.
    """
    folder = tmp_path_factory.mktemp("rough")
    write_prompts(folder / "A.jsonl", 190)
    faults = ["health-503-under-load=30", "reset-counters=3", "gauge-frozen", "flood-stdout=8"]
    run = make_run(
        folder,
        [{"name": "A", "path": "A.jsonl"}],
        args=["--speed", "40", "--mean", "1000", "--enable-metrics", *[f"--fault={fault}" for fault in faults]],
        engine={"stall_after_s": 4},
        generation={"max_new_tokens": 2048},
    )
    try:
        run.start()
        before = run.wait(lambda s: s.datasets[0].finished_samples > 0)
        after = run.wait(lambda s: s.datasets[0].finished_samples >= 150)
        run.wait_left()
        yield run, before, after
    finally:
        run.cleanup()


def test_a_server_that_answers_503_to_health_probes_under_load_is_left_alone(
    rough: tuple[LiveRun, JobStatus, JobStatus],
) -> None:
    run, before, after = rough
    assert before.replicas[0].pid is not None
    assert before.replicas[0].pid == after.replicas[0].pid
    assert (after.replicas[0].restarts, after.datasets[0].retries) == (0, 0)
    assert len({row.server_epoch for row in run.rows()}) == 1
    assert {"engine.stalled", "engine.ended", "engine.lost_requests"}.isdisjoint(run.kinds())
    run.check_exact({"A": [f"A-{i}" for i in range(190)]})


def test_counters_that_are_reset_make_no_negative_rates(rough: tuple[LiveRun, JobStatus, JobStatus]) -> None:
    with closing(open_state(rough[0].run, read_only=True)) as con:
        rows = con.execute("SELECT decode_tokens_per_s AS d, prefill_tokens_per_s AS p FROM engine_samples").fetchall()
    rates = [rate for row in rows for rate in (row["d"], row["p"]) if rate is not None]
    assert rates
    assert min(rates) >= 0


def test_a_flood_of_output_blocks_nothing_and_lies_in_the_log(rough: tuple[LiveRun, JobStatus, JobStatus]) -> None:
    log = rough[0].run.server_log("0")
    assert log.stat().st_size > 8_000_000
    assert log.stat().st_mode & 0o077 == 0


# -- runs that go on beside each other, because each of them mostly waits ------------------------------------------------------


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, LiveRun]]:
    """Started at the same time: an older server, one with a cap, one that is never ready, one whose port is taken."""
    folder = tmp_path_factory.mktemp("together")
    write_prompts(folder / "A.jsonl", 100)
    runs: dict[str, LiveRun] = {}
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        impatient = {"ready_timeout_s": 0.5, "stop_deadline_s": 0.2, "restart_backoff_s": 0.1}
        settings: dict[str, dict[str, Any]] = {
            "old": {"args": ["--profile", "old", "--speed", "40"]},
            "capped": {
                "args": ["--speed", "10", "--fault", "spec-cap-48"],
                "generation": {"concurrency": 64, "max_new_tokens": 500},
            },
            "never ready": {"args": ["--fault", "hang-at-start"], "engine": impatient},
            "port taken": {"engine": {"port": holder.getsockname()[1], "restart_backoff_s": 0.1}},
        }
        try:
            for name, changes in settings.items():
                (folder / name).mkdir()
                runs[name] = make_run(folder / name, [{"name": "A", "path": str(folder / "A.jsonl")}], **changes)
                runs[name].start()
            yield runs
        finally:
            for run in runs.values():
                run.cleanup()


def test_more_requests_than_the_engine_runs_are_told(together: dict[str, LiveRun]) -> None:
    run = together["capped"]
    run.wait_left()

    words = run.words("engine.capped")
    assert "runs at most 48 requests at once, and 64 are in flight" in words
    assert "Put --max-running-requests 64 into engine.args" in words
    run.check_exact({"A": [f"A-{i}" for i in range(100)]})


def test_a_port_that_somebody_else_holds_is_told_with_the_holder(together: dict[str, LiveRun]) -> None:
    run = together["port taken"]
    status = run.wait_left()

    assert (status.phase, status.exit_code) == (RunPhase.FAILED, 1)
    assert f" is held by pid {os.getpid()} (" in run.words("run.failed")
    assert "End that process" in text_of(run)


def test_a_server_that_never_becomes_ready_ends_the_run_with_its_reason(together: dict[str, LiveRun]) -> None:
    run = together["never ready"]
    status = run.wait_left()

    assert (status.phase, status.exit_code) == (RunPhase.FAILED, 1)
    assert run.kinds()["engine.start_failed"] == 3
    for words in (run.words("engine.start_failed"), run.words("run.failed"), text_of(run)):
        assert "The server did not become ready" in words
        assert "raise engine.ready_timeout_s" in words
    assert run.processes() == []


# -- servers that hang or die ------------------------------------------------------------------------------------------------


def test_a_server_that_hangs_with_health_200_is_restarted(tmp_path: Path, new_run: NewRun) -> None:
    expected = {"A": write_prompts(tmp_path / "A.jsonl", 60)}
    run = new_run([{"name": "A", "path": "A.jsonl"}], engine={"stall_after_s": 2, "stop_deadline_s": 0.5})

    start_with_fault(run, "hang")
    run.wait_left()

    assert "16 requests are waiting and for 2 s no token came" in run.words("engine.stalled")
    assert run.kinds()["engine.ready"] == 2
    assert run.kinds()["engine.ended"] == 1
    assert len({row.server_epoch for row in run.rows()}) == 1
    assert run.dataset("A").retries == 0
    run.check_exact(expected)


def test_a_server_that_dies_with_its_port_held_and_an_orphan_is_cleared_and_restarted(tmp_path: Path, new_run: NewRun) -> None:
    expected = {"A": write_prompts(tmp_path / "A.jsonl", 60)}
    port = free_port()
    run = new_run([{"name": "A", "path": "A.jsonl"}], args=["--fault", "orphan-child"], engine={"port": port})

    first = start_with_fault(run, "die-at-request", "20:hold")
    assert len(first) >= 4  # itself, two children, the orphan
    run.wait(lambda s: s.replicas[0].restarts == 1 and (s.replicas[0].state is EngineState.READY or s.exit_code is not None))
    left_of_first = first & set(run.processes())
    run.wait_left()

    assert left_of_first == set()
    ready = [words for kind, words in run.events() if kind == "engine.ready"]
    assert [f"http://127.0.0.1:{port}," in words for words in ready] == [True, True]
    assert len({row.server_epoch for row in run.rows()}) == 2
    assert "it was killed (exit code -9)" in run.words("engine.ended")
    assert run.kinds()["engine.ready"] == 2
    run.check_exact(expected)
    assert run.processes() == []


@pytest.mark.drill
def test_pausing_now_gives_the_prompts_back_though_the_server_ignores_aborts(tmp_path: Path, new_run: NewRun) -> None:
    expected = {"A": write_prompts(tmp_path / "A.jsonl", 40)}
    run = new_run(
        [{"name": "A", "path": "A.jsonl"}],
        args=["--speed", "20", "--fault", "ignore-abort", "--fault", "ignore-disconnects"],
        generation={"max_new_tokens": 2048},
    )
    run.start()
    run.wait(lambda s: s.datasets[0].finished_samples >= 3)

    run.pause("A", now=True)
    run.wait_dataset("A", lambda d: d.state is DatasetState.PAUSED and d.in_flight == 0, 10.0)
    run.resume("A")
    run.wait_left()

    assert {"engine.stalled", "engine.lost_requests"}.isdisjoint(run.kinds())
    run.check_exact(expected)


# -- disks -------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 14 MB; only root can make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=14m", "tmpfs", str(folder)], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"no small disk can be mounted here: {made.stderr.decode(errors='replace')}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def test_a_full_disk_stops_admission_with_words_and_the_run_goes_on_when_there_is_room(
    tmp_path: Path, small_disk: Path
) -> None:
    expected = {"A": write_prompts(tmp_path / "A.jsonl", 6)}
    run = make_run(
        small_disk,
        [{"name": "A", "path": str(tmp_path / "A.jsonl")}],
        args=["--fault", "answer-6mb"],
        driver={"disk_floor_gb": 0},
        generation={"concurrency": 2, "max_new_tokens": 50_000},
    )
    try:
        pid = run.start()
        deadline = time.monotonic() + 30
        while (words := supervisor_words(run.run)) is None or "ledger.sqlite cannot grow" not in words:
            assert time.monotonic() < deadline, run.story()
            time.sleep(0.05)
        told = text_of(run)
        subprocess.run(["mount", "-o", "remount,size=200m", str(small_disk)], check=True)
        run.wait_left()

        assert f"Supervisor: alive (pid {pid})." in told
        assert "the supervisor lives and cannot write how it goes" in told
        assert "ledger.sqlite cannot grow: the disk is full" in told
        assert "the disk is full" in run.words("run.admission_stopped")
        assert "Requests are sent again." in run.words("run.admission_stopped.over")
        assert f"pid {pid}" in run.words("run.started")
        assert run.kinds()["run.started"] == 1
        run.check_exact(expected)
        assert {len(row.raw_text or "") > 6_000_000 for row in run.rows()} == {True}
    finally:
        run.cleanup()


# -- other servers -----------------------------------------------------------------------------------------------------------


def test_an_older_server_makes_a_whole_run_and_what_it_does_not_tell_is_missing(together: dict[str, LiveRun]) -> None:
    run = together["old"]
    assert run.wait_left().phase is RunPhase.FINISHED

    assert "SGLang 0.4.6" in run.words("engine.ready")
    run.check_exact({"A": [f"A-{i}" for i in range(100)]})
    assert {"engine.stalled", "engine.lost_requests", "engine.ended"}.isdisjoint(run.kinds())
    with closing(open_state(run.run, read_only=True)) as con:
        ages = con.execute("SELECT heartbeat_age_s AS a, answered AS b FROM engine_samples").fetchall()
    assert {row["a"] for row in ages} == {None}
    assert 1.0 in {row["b"] for row in ages}


class ForeignServer:
    """A simulator that is not Headway's."""

    def __init__(self, folder: Path, *flags: str, key: str) -> None:
        self.key = key
        port_file = folder / "port"
        arguments = ["--port", "0", "--port-file", str(port_file), "--api-key", key, *flags]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "backend.simulator", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 30
        while not port_file.exists() or not port_file.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        self.url = f"http://127.0.0.1:{port_file.read_text().strip()}"

    def ask(self, path: str, body: dict[str, Any] | None = None, timeout_s: float = 60.0) -> bytes:
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=timeout_s) as response:
            content: bytes = response.read()
        return content

    def ask_beside(self, text: str) -> subprocess.Popen[bytes]:
        """A process that asks for a long answer and ends with 0 if that is whole."""
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": 30_000, "ignore_eos": True}
        script = (
            "import json, sys, urllib.request as u; url, key, body = sys.argv[1:]; "
            "h = {'Authorization': f'Bearer {key}', 'Content-Type': 'application/json'}; "
            "a = json.load(u.urlopen(u.Request(url, body.encode(), h), timeout=60)); "
            "sys.exit(a['choices'][0]['finish_reason'] == 'abort')"
        )
        url = f"{self.url}/v1/chat/completions"
        return subprocess.Popen([sys.executable, "-S", "-c", script, url, self.key, json.dumps(body)])

    def running(self) -> int:
        load = json.loads(self.ask("/v1/loads"))["loads"][0]
        return int(load["num_running_reqs"] + load["num_waiting_reqs"])


@pytest.fixture
def foreign(tmp_path: Path) -> Iterator[ForeignServer]:
    server = ForeignServer(tmp_path, "--speed", "20", key="right-key")
    yield server
    server.process.kill()
    server.process.wait()


def test_a_server_of_somebody_else_loses_only_our_requests_and_is_never_stopped(
    tmp_path: Path, new_run: NewRun, foreign: ForeignServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {"A": write_prompts(tmp_path / "A.jsonl", 60)}
    engine = {"kind": "attached", "urls": [foreign.url], "api_key_env": "FOREIGN_KEY", "args": []}
    run = new_run([{"name": "A", "path": "A.jsonl"}], engine=engine, generation={"max_new_tokens": 2048})
    monkeypatch.setenv("FOREIGN_KEY", "right-key")
    run.start()
    run.wait(lambda s: s.datasets[0].finished_samples >= 3 and s.in_flight == 16)
    asking = foreign.ask_beside("not Headway's")
    deadline = time.monotonic() + 20
    while foreign.running() < 17:
        assert time.monotonic() < deadline
        time.sleep(0.02)

    run.pause("A", now=True)
    run.wait_dataset("A", lambda d: d.state is DatasetState.PAUSED and d.in_flight == 0, 10.0)
    while foreign.running() > 1:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    run.resume("A")
    run.wait_left()

    assert asking.wait(60) == 0
    assert foreign.process.poll() is None
    run.check_exact(expected)
    assert "right-key" not in run.story()


def test_a_wrong_key_is_told_and_no_prompt_is_booked_as_rejected(
    tmp_path: Path, new_run: NewRun, foreign: ForeignServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = {"A": write_prompts(tmp_path / "A.jsonl", 20)}
    engine = {"kind": "attached", "urls": [foreign.url], "api_key_env": "FOREIGN_KEY", "args": []}
    run = new_run([{"name": "A", "path": "A.jsonl"}], engine=engine)
    monkeypatch.setenv("FOREIGN_KEY", "wrong-key")
    run.start()
    run.wait(lambda s: run.kinds()["engine.denied"] == 1, what="engine.denied")
    told = text_of(run)
    run.stop(now=True)
    denied = run.wait_left().datasets[0]
    monkeypatch.setenv("FOREIGN_KEY", "right-key")
    run.start()
    run.wait_left()

    assert "HTTP 401" in run.words("engine.denied")
    assert "FOREIGN_KEY" in run.words("engine.denied")
    assert "HTTP 401" in told
    assert (denied.finished_samples, denied.rejected) == (0, 0)
    run.check_exact(expected)
    assert "wrong-key" not in run.story()
