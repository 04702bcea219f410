"""A whole run through the real SGLang, from the shell: paused, killed, revived, taken over, its scheduler shot, and exact."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import tomli_w
from real_server import metric_of

from backend.engine_cpu.place import SHIM, EnginePlace, engine_env, engine_settings
from backend.heartbeat import supervisor_pid
from backend.job.process_tree import all_processes, command_line, read_environ
from backend.job.server_record import ServerRecord, load_record
from backend.records import DatasetState, EngineState, JobStatus, Row, RunPhase
from backend.run_dir import RunDir
from tests.runs.live_run import LiveRun

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data"
COUNTERS = ("sglang:num_requests_total", "sglang:prompt_tokens_total", "sglang:generation_tokens_total")
READY_LIMIT_S = 240.0
CONCURRENCY = 16
QUIET_SAMPLES = 30  # of the phase that nothing disturbs
MAX_NEW_TOKENS = 400  # a quick machine makes 2,000 tokens a second: a dataset must outlast what is done to it

DECODE = """
import json, sys
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1])
json.dump([tokenizer.decode(ids, skip_special_tokens=True) for ids in json.load(sys.stdin)], sys.stdout)
"""


@dataclass
class Story:
    """What happened to the run, and what was seen on the way."""

    live: LiveRun
    place: EnginePlace
    counters: list[tuple[float, ...]] = field(default_factory=list)  # SGLang's own, before and after the quiet phase
    rows: list[list[Row]] = field(default_factory=list)  # at the same moments
    servers: list[ServerRecord] = field(default_factory=list)  # each life's, as it was written down
    environments: list[dict[str, str]] = field(default_factory=list)
    command_lines: list[str] = field(default_factory=list)
    files_with_keys: dict[str, int] = field(default_factory=dict)  # path → permission bits
    taken_over_after_s: float = 0.0
    in_flight_at_the_shot: int = 0
    end: JobStatus | None = None


def headway(runs: Path, *arguments: str) -> str:
    """A command of `python -m backend`, as a user gives it."""
    done = subprocess.run(
        [sys.executable, "-m", "backend", *arguments],
        cwd=ROOT,
        env={**os.environ, "HEADWAY_RUNS": str(runs)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def story(engine_place: EnginePlace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("real_run")
    settings = engine_settings(ROOT)
    settings["engine"] |= {"stall_after_s": 120, "stop_deadline_s": 30, "restart_backoff_s": 0.5}
    config: dict[str, Any] = {
        "name": "real",
        **settings,
        "generation": {"concurrency": CONCURRENCY, "max_new_tokens": MAX_NEW_TOKENS, "temperature": 1.0},
        "driver": {"disk_floor_gb": 0, "shard_rows": 60, "retry_backoff_s": 0.2, "retry_backoff_max_s": 2},
        "datasets": [
            {"name": "arithmetic", "path": str(DATA / "arithmetic.jsonl")},
            {"name": "functions", "path": str(DATA / "functions.jsonl"), "id_field": "task_id"},
        ],
    }
    (folder / "real.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
    told = Story(LiveRun(RunDir(folder / "runs" / "real")), engine_place)
    try:
        tell(told, folder)
        yield told
    finally:
        told.live.cleanup()


def tell(story: Story, folder: Path) -> None:
    """Everything that is done to the run, in order."""
    runs, live = folder / "runs", story.live
    headway(runs, "create", str(folder / "real.toml"))
    headway(runs, "start", "real")
    live.wait(lambda s: s.replicas[0].state is EngineState.READY, READY_LIMIT_S, what="ready")
    live.wait_dataset("arithmetic", lambda d: d.finished_samples >= 10 and d.in_flight)
    look_at_secrets(story)

    headway(runs, "pause", "real", "arithmetic")
    live.wait_dataset("arithmetic", lambda d: d.state is DatasetState.PAUSED and not d.in_flight)
    live.wait_dataset("functions", lambda d: d.finished_samples >= 5 and d.in_flight)
    headway(runs, "kill", "real", "functions")
    live.wait(lambda s: s.datasets[1].state is DatasetState.KILLED and not s.in_flight)

    look_at_counters(story)
    revived = live.dataset("functions").finished_samples
    headway(runs, "resume", "real", "functions")
    live.wait_dataset("functions", lambda d: d.finished_samples >= revived + QUIET_SAMPLES)
    headway(runs, "pause", "real", "functions")
    live.wait(lambda s: s.datasets[1].state is DatasetState.PAUSED and not s.in_flight)
    look_at_counters(story)

    headway(runs, "resume", "real", "arithmetic")
    live.wait(lambda s: s.in_flight == CONCURRENCY)
    kill_the_supervisor(story, runs)

    headway(runs, "resume", "real", "functions")
    live.wait(lambda s: s.in_flight == CONCURRENCY)
    shoot_the_scheduler(story)
    live.wait(lambda s: s.replicas[0].restarts == 1 and s.replicas[0].state is EngineState.READY, READY_LIMIT_S, what="again")
    look_at_secrets(story)
    headway(runs, "wait", "real", "--timeout", "180")
    story.end = live.wait_left(10.0)


def look_at_secrets(story: Story) -> None:
    """What others on this machine can see while the server works."""
    record = load_record(story.live.run.servers, "0")
    assert record is not None
    assert record.main is not None
    assert record.api_key is not None
    story.servers.append(record)
    story.environments.append(read_environ(record.main.pid) or {})
    story.command_lines += [command_line(pid) for pid in all_processes()]
    for path in story.live.run.root.rglob("*"):
        if path.is_file() and record.api_key.encode() in path.read_bytes():
            story.files_with_keys[str(path)] = stat.S_IMODE(path.stat().st_mode)


def look_at_counters(story: Story) -> None:
    """SGLang's counters and our rows while nothing is in flight."""
    record = load_record(story.live.run.servers, "0")
    assert record is not None

    async def ask() -> tuple[float, ...]:
        headers = {"Authorization": f"Bearer {record.api_key}"}
        async with aiohttp.ClientSession(record.base_url, headers=headers, timeout=aiohttp.ClientTimeout(total=30)) as client:
            return tuple([await metric_of(client, name) for name in COUNTERS])

    story.counters.append(settled(lambda: asyncio.run(ask())))
    story.rows.append(story.live.rows())


def settled(read: Callable[[], tuple[float, ...]]) -> tuple[float, ...]:
    """The value once it has stood still for a second: a counter moves a little after its answer was sent."""
    before, deadline = read(), time.monotonic() + 20
    while time.monotonic() < deadline:
        time.sleep(1.0)
        now = read()
        if now == before:
            return now
        before = now
    raise AssertionError(f"counters do not come to rest: {before}")


def kill_the_supervisor(story: Story, runs: Path) -> None:
    live = story.live
    server, former = live.status().replicas[0].pid, supervisor_pid(live.run)
    live.kill_supervisor()
    began_at = time.monotonic()
    headway(runs, "start", "real", "--no-wait")
    seen = live.wait(lambda s: supervisor_pid(live.run) != former and s.replicas[0].pid == server and s.in_flight > 0, 30.0)
    story.taken_over_after_s = time.monotonic() - began_at
    assert seen.replicas[0].state is EngineState.READY


def shoot_the_scheduler(story: Story) -> None:
    pid = story.live.status().replicas[0].pid
    assert pid is not None
    schedulers = [one for one in session_of(pid) if command_line(one).startswith("sglang::scheduler")]
    assert len(schedulers) == 1
    story.in_flight_at_the_shot = story.live.status().in_flight
    os.kill(schedulers[0], signal.SIGKILL)


def session_of(leader: int) -> list[int]:
    """Living processes of a server's session."""
    return [pid for pid, one in all_processes().items() if one.alive and one.session == leader]


def prompts(name: str, key: str) -> list[str]:
    with (DATA / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line)[key] for line in lines]


def test_every_prompt_is_answered_exactly_once(story: Story) -> None:
    assert story.end is not None
    assert (story.end.phase, story.end.exit_code) == (RunPhase.FINISHED, 0)
    story.live.check_exact({"functions": prompts("functions", "task_id")})
    asked = [json.loads(row.messages)["messages"][-1]["content"] for row in story.live.rows("arithmetic")]
    assert sorted(asked) == sorted(prompts("arithmetic", "question"))
    assert {row.finish_reason for row in story.live.rows()} <= {"stop", "length"}
    assert {d.rejected for d in story.end.datasets} == {0}


def test_over_the_quiet_phase_our_counts_equal_sglangs(story: Story) -> None:
    before, after = story.rows
    known = {row.sample_id for row in before}
    made = [row for row in after if row.sample_id not in known]
    ours = (len(made), sum(row.prompt_tokens or 0 for row in made), sum(row.completion_tokens for row in made))
    assert len(made) >= QUIET_SAMPLES
    assert ours == tuple(b - a for a, b in zip(*story.counters, strict=True))


def test_the_ids_of_every_row_decode_to_its_text(story: Story) -> None:
    rows = story.live.rows()
    command = [str(story.place.python), "-c", DECODE, str(story.place.model / "tokenizer.json")]
    decoded = subprocess.run(
        command,
        input=json.dumps([row.output_ids for row in rows]),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=True,
        env=engine_env(),
    )
    texts = json.loads(decoded.stdout)
    assert len(texts) == len(rows)
    # an answer cut inside a character: the server leaves out what the decoder shows as U+FFFD
    different = [
        (row.raw_text, text)
        for row, text in zip(rows, texts, strict=True)
        if row.raw_text is None or row.raw_text.rstrip("\ufffd") != text.rstrip("\ufffd")
    ]
    assert different == []
    assert all(row.output_ids is not None and len(row.output_ids) == row.completion_tokens for row in rows)
    assert all(row.prompt_token_ids is not None and len(row.prompt_token_ids) == row.prompt_tokens for row in rows)


def test_a_killed_supervisors_server_is_kept_and_asked_within_five_seconds(story: Story) -> None:
    assert story.live.kinds()["engine.adopted"] == 1
    assert "requests of the former supervisor were aborted" in story.live.words("engine.former_requests_aborted")
    assert story.taken_over_after_s < 5.0


def test_a_dead_scheduler_costs_a_restart_and_its_requests_are_sent_again(story: Story) -> None:
    assert story.in_flight_at_the_shot == CONCURRENCY
    assert "Replica 0: The server ended" in story.live.words("engine.ended")
    assert story.servers[0].launch != story.servers[1].launch
    assert {row.server_epoch for row in story.live.rows()} == {f"0:{record.launch}" for record in story.servers}


def test_nothing_of_it_is_left(story: Story) -> None:
    assert story.live.processes() == []
    leaders = {record.main.pid for record in story.servers if record.main is not None}
    assert [command_line(pid) for leader in leaders for pid in session_of(leader)] == []
    assert list(story.live.run.servers.iterdir()) == []


def test_the_api_key_shows_in_no_command_line_and_in_no_file_that_others_can_read(story: Story) -> None:
    keys = {record.api_key for record in story.servers}
    assert len(keys) == 2
    assert any("sglang::scheduler" in line for line in story.command_lines)
    assert [line for line in story.command_lines if any(str(key) in line for key in keys)] == []
    assert any(path.endswith("servers/0.json") for path in story.files_with_keys)
    assert [path for path, mode in story.files_with_keys.items() if mode & 0o077] == []


def test_the_server_sees_its_own_modules_only(story: Story) -> None:
    assert [environment["PYTHONPATH"] for environment in story.environments] == [str(SHIM)] * 2
