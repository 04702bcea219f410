"""The command line: what it prints, its exit codes, and never a traceback."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import fields
from pathlib import Path

import pytest

from backend.__main__ import build_parser, main
from backend.commands import steering
from backend.control import start as start_module
from backend.heartbeat import lock_is_held, supervisor_pid
from backend.records import ApiState, ApiStatus, ReplicaStatus, RunPhase
from backend.report.views import DatasetView, EndView, EventView, RunView, SupervisorView, TotalsView
from backend.run_dir import RunDir, open_ledger, open_state
from tests.made_run import beat, holding_lock, job_status, make_run, write_config, write_event, write_open_row

ROOT = Path(__file__).resolve().parents[1]
DOCS = (ROOT / "docs/cli.md").read_text()
STAND_IN = (sys.executable, str(Path(__file__).with_name("stand_in_supervisor.py")))

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunDir]:
    monkeypatch.setenv("HEADWAY_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(start_module, "SUPERVISOR", STAND_IN)
    made = make_run(tmp_path)
    yield made
    pid = supervisor_pid(made)
    if pid is not None and pid != os.getpid() and lock_is_held(made):
        os.kill(pid, signal.SIGKILL)


def refused(capture: Capture, *arguments: str) -> str:
    """The reason on stderr of a command that must be refused."""
    capture.readouterr()
    assert main(arguments) == 1
    told = capture.readouterr()
    assert told.out == ""
    assert "Traceback" not in told.err
    return told.err


def done(capture: Capture, *arguments: str) -> str:
    """What a command that must work prints."""
    capture.readouterr()
    code = main(arguments)
    told = capture.readouterr()
    assert (code, told.err) == (0, "")
    return told.out


def answer_all(run: RunDir, *, accepted: bool, message: str) -> threading.Thread:
    """Answers the next intent from a thread, as a supervisor would."""

    def answer() -> None:
        deadline = time.monotonic() + 20
        with closing(open_state(run)) as con:
            while time.monotonic() < deadline:
                row = con.execute("SELECT id FROM intents WHERE id NOT IN (SELECT intent_id FROM intent_answers)").fetchone()
                if row is not None:
                    con.execute("INSERT INTO intent_answers VALUES (?, 1.0, ?, ?)", (row["id"], int(accepted), message))
                    return
                time.sleep(0.02)

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


# -- usage ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("dance",),
        ("start",),
        ("pause", "demo"),
        ("redo", "demo", "alpha"),
        ("wait", "demo", "--timeout", "soon"),
        ("wait", "demo", "--timeout", "nan"),
        ("wait", "demo", "--until", "never"),
        ("logs", "demo", "--lines", "-1"),
        ("engine", "demo", "dance"),
        ("status", "demo", "--js"),
    ],
)
def test_wrong_usage_is_2(arguments: tuple[str, ...], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_help_needs_no_heavy_library() -> None:
    code = (
        "import sys; from backend.__main__ import build_parser; build_parser().format_help();"
        "print(sorted({'pyarrow', 'duckdb', 'pydantic', 'aiohttp', 'numpy', 'sqlite3'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"


# -- what cannot be done is said in words --------------------------------------------------------------------------------

NAMED_RUN = [
    ("start",), ("stop",), ("pause", "alpha"), ("resume", "alpha"), ("kill", "alpha"), ("redo", "alpha", "--outcome", "empty"),
    ("set", "concurrency=9"), ("engine", "stop"), ("status",), ("wait",), ("logs",),
]  # fmt: skip


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("command", NAMED_RUN)
def test_an_unknown_run_is_refused_by_every_command(command: tuple[str, ...], capsys: Capture) -> None:
    assert "Did you mean demo?" in refused(capsys, command[0], "dmo", *command[1:])


@pytest.mark.parametrize("command", [c for c in NAMED_RUN if c[0] not in ("stop", "engine", "logs")])
def test_a_broken_run_toml_is_refused(command: tuple[str, ...], run: RunDir, capsys: Capture) -> None:
    run.config.write_text("name = \n")
    assert "run.toml" in refused(capsys, command[0], "demo", *command[1:])


def test_a_broken_run_does_not_hide_the_others(run: RunDir, tmp_path: Path, capsys: Capture) -> None:
    make_run(tmp_path, "other")
    run.config.write_text("name = \n")
    text = done(capsys, "list")
    assert "other" in text
    assert "not valid TOML" in text
    listed = json.loads(done(capsys, "list", "--json"))
    assert [r["name"] for r in listed["runs"]] == ["other"]
    assert [r["name"] for r in listed["unreadable"]] == ["demo"]


@pytest.mark.usefixtures("run")
def test_an_unknown_dataset_names_the_nearest(capsys: Capture) -> None:
    for command in ("pause", "resume", "kill"):
        assert "Did you mean alpha?" in refused(capsys, command, "demo", "alfa")
    assert "Did you mean beta?" in refused(capsys, "wait", "demo", "--until", "betta=done")


@pytest.mark.usefixtures("run")
def test_settings_that_cannot_be_are_refused(capsys: Capture) -> None:
    assert "KEY=VALUE" in refused(capsys, "set", "demo", "concurrency")
    assert "concurrency" in refused(capsys, "set", "demo", "concurrency=many")
    assert "did you mean" in refused(capsys, "set", "demo", "concurency=9")


def test_a_damaged_state_is_refused_in_words(run: RunDir, capsys: Capture) -> None:
    run.state.write_bytes(b"this is no database" * 100)
    for command in (("start",), ("pause", "alpha"), ("stop",)):
        assert "Move it away" in refused(capsys, command[0], "demo", *command[1:])
    assert "Note: " in done(capsys, "status", "demo")


def test_a_locked_state_is_refused_in_words(run: RunDir, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(_: RunDir) -> sqlite3.Connection:
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr("backend.control.intents.open_state", locked)
    assert "try again in a moment" in refused(capsys, "pause", "demo", "alpha")


def test_a_terminal_never_sees_what_it_would_obey(tmp_path: Path, capsys: Capture) -> None:
    evil = "pro\x1b]0;owned\x07mpts.jsonl"
    config = write_config(tmp_path)
    config.write_text(
        config.read_text().replace("prompts/alpha.jsonl", evil.replace("\x1b", "\\u001b").replace("\x07", "\\u0007"))
    )
    told = refused(capsys, "create", str(config))
    assert "\x1b" not in told
    assert r"pro\x1b]0;owned\x07mpts.jsonl" in told


# -- create, start, stop -------------------------------------------------------------------------------------------------


def test_a_run_is_created_started_steered_and_stopped(run: RunDir, tmp_path: Path, capsys: Capture) -> None:
    open_ledger(run).close()  # the stand-in makes none
    text = done(capsys, "create", str(write_config(tmp_path, "second")))
    assert "alpha: 5 prompts in 1 file" in text
    assert "beta: 10 prompts in 2 files" in text
    assert "exists already" in refused(capsys, "create", str(tmp_path / "second.toml"))
    assert "is running (pid" in done(capsys, "start", "demo")
    assert "already running (pid" in done(capsys, "start", "demo")
    assert "dataset:alpha state: as you wish." in done(capsys, "pause", "demo", "alpha", "--now")
    assert "Refused: No redo." in refused(capsys, "redo", "demo", "alpha", "--outcome", "empty,degenerate")
    assert "run state: as you wish." in done(capsys, "stop", "demo")
    assert "demo is stopped" in done(capsys, "wait", "demo", "--timeout", "30")
    assert "not running: nothing to stop" in done(capsys, "stop", "demo")


def test_a_start_that_fails_says_why(run: RunDir, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_module, "SUPERVISOR", (*STAND_IN, "--fail", "no such model"))
    assert "no such model" in refused(capsys, "start", "demo")


# -- wishes --------------------------------------------------------------------------------------------------------------


def test_a_wish_waits_while_nobody_works(run: RunDir, capsys: Capture) -> None:
    assert "the wish waits until python -m backend start demo" in done(capsys, "pause", "demo", "alpha")
    beat(run, job_status(), at=time.time() - 60)
    with holding_lock(run, changed_at=time.time() - 60):
        assert "does not answer at the moment" in done(capsys, "resume", "demo", "alpha")
    assert "nobody can stop the run; its engine may still be there" in refused(capsys, "stop", "demo")
    assert "2 wishes not answered yet." in done(capsys, "status", "demo")


def test_the_answer_is_awaited_and_told(run: RunDir, capsys: Capture) -> None:
    beat(run, job_status(), at=time.time() + 60)
    with holding_lock(run, changed_at=time.time()):
        thread = answer_all(run, accepted=True, message="alpha will pause.")
        assert "alpha will pause." in done(capsys, "pause", "demo", "alpha")
        thread.join()
        thread = answer_all(run, accepted=False, message="Not now.")
        assert refused(capsys, "engine", "demo", "stop") == "Refused: Not now.\n"
        thread.join()
        assert "not waited" in done(capsys, "engine", "demo", "start", "--no-wait")


def test_set_tells_old_and_new(run: RunDir, capsys: Capture) -> None:
    assert "concurrency: 8 → 96" in done(capsys, "set", "demo", "concurrency=96")
    assert "datasets.beta.max_samples: 3 → none" in done(capsys, "set", "demo", "beta.max_samples=none")
    with closing(open_ledger(run)) as con:
        con.execute(
            "INSERT INTO accepted_intents (token, at, who, subject, action, value) "
            """VALUES ('t', 1, 'me', 'run', 'set', '{"key": "concurrency", "value": 96}')"""
        )
    assert "concurrency: 96 → 12" in done(capsys, "set", "demo", "concurrency=12")


def test_kill_tells_what_stays(run: RunDir, capsys: Capture) -> None:
    write_open_row(run, "alpha", "a", 1500)
    text = done(capsys, "kill", "demo", "alpha")
    assert "1 finished sample of alpha (1.50k tokens) stay" in text
    assert "python -m backend resume demo alpha" in text


# -- looking -------------------------------------------------------------------------------------------------------------


def test_wait_times_out_with_words(run: RunDir, capsys: Capture) -> None:
    open_ledger(run).close()
    beat(run, job_status(), at=time.time() + 60)
    with holding_lock(run, changed_at=time.time()):
        assert "Not within 0 s. demo runs alpha" in refused(capsys, "wait", "demo", "--timeout", "0")
        assert "The engine is ready." in done(capsys, "wait", "demo", "--until", "ready")
        assert "alpha is running." in done(capsys, "wait", "demo", "--until", "alpha=running")
    assert "dead" in refused(capsys, "wait", "demo")


def test_who_waits_learns_once_that_nobody_answers(run: RunDir, capsys: Capture) -> None:
    open_ledger(run).close()
    beat(run, job_status(), at=time.time() - 60)
    with holding_lock(run, changed_at=time.time() - 60):
        told = refused(capsys, "wait", "demo", "--timeout", "1.2")
    assert told.startswith("Supervisor: not answering")
    assert len(told.splitlines()) == 2  # the warning, then the time-out


def test_a_start_while_the_former_supervisor_leaves_starts_a_new_one(
    run: RunDir, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steering, "ANSWER_TIMEOUT_S", 0.5)
    with ExitStack() as former:
        former.enter_context(holding_lock(run, changed_at=time.time()))
        leaving = threading.Timer(0.2, former.pop_all().close)
        leaving.start()
        assert "demo is running (pid" in done(capsys, "start", "demo")
        leaving.join()


def test_a_failed_run_is_a_1_for_who_waits(run: RunDir, capsys: Capture) -> None:
    beat(run, job_status(phase=RunPhase.FAILED), at=time.time())
    assert "has failed" in refused(capsys, "wait", "demo")


def test_logs_of_a_server_show_no_key(run: RunDir, capsys: Capture) -> None:
    run.create_folders()
    run.server_log("0").write_text("server_args={'port': 1, 'api_key': 'very-secret-1234', 'tp_size': 1}\n")

    assert main(["logs", "demo", "--server", "0"]) == 0
    said = capsys.readouterr().out
    assert "very-secret" not in said
    assert "'api_key': ***" in said


def test_logs_show_the_end_escaped(run: RunDir, capsys: Capture) -> None:
    assert "never started" in refused(capsys, "logs", "demo")
    run.supervisor_log().write_text("one\ntwo \x1b[31mred\nthree\n")
    run.server_log("0").write_text("server\n")
    assert done(capsys, "logs", "demo", "--lines", "2") == "two \\x1b[31mred\nthree\n"
    assert done(capsys, "logs", "demo", "--server", "0") == "server\n"
    assert "server logs there are: 0" in refused(capsys, "logs", "demo", "--server", "9")


def test_who_reads_may_leave(run: RunDir) -> None:
    run.supervisor_log().write_text("x" * 100 + "\n")
    command = f"{sys.executable} -m backend logs demo --lines 100000 | head -c 1"
    run.supervisor_log().write_text(("x" * 100 + "\n") * 20000)
    told = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=60, check=False
    )
    assert (told.stdout, told.stderr) == ("x", "")


def test_a_run_without_databases_is_shown(run: RunDir, capsys: Capture) -> None:
    assert "never started" in done(capsys, "status", "demo")
    assert json.loads(done(capsys, "status", "demo", "--json"))["totals"]["finished_samples"] == 0


# -- the documented shapes -----------------------------------------------------------------------------------------------


def documented(heading: str) -> list[str]:
    """The fields in the table below a heading of docs/cli.md."""
    section = DOCS.split(f"\n{heading}\n", 1)[1].split("\n#", 1)[0]
    return re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)


@pytest.mark.parametrize(
    ("heading", "shape"),
    [
        ("### The run", RunView),
        ("### `supervisor`", SupervisorView),
        ("### `totals`", TotalsView),
        ("### `datasets`", DatasetView),
        ("### `replicas`", ReplicaStatus),
        ("### `apis`", ApiStatus),
        ("### `events`", EventView),
        ("### `forecast`", EndView),
    ],
)
def test_every_field_is_documented_in_order(heading: str, shape: type) -> None:
    assert documented(heading) == [f.name for f in fields(shape)]


def test_the_documented_example_has_the_real_shape(run: RunDir, capsys: Capture) -> None:
    example = json.loads(DOCS.split("```json\n", 1)[1].split("```", 1)[0])
    write_event(run, "The engine is ready.", at=1.0)
    open_ledger(run).close()
    beat(run, job_status(apis=(ApiStatus("a", ApiState.OPEN),)), at=time.time())
    real = json.loads(done(capsys, "status", "demo", "--json"))
    assert keys(example) == keys({**real, "datasets": real["datasets"][:1]})


def test_the_lists_shape_is_documented(run: RunDir, capsys: Capture) -> None:
    assert documented("## `list --json`") == list(json.loads(done(capsys, "list", "--json")))


def test_every_command_is_documented() -> None:
    actions = [a for a in build_parser()._actions if a.dest == "command"]
    assert actions[0].choices is not None
    names = list(actions[0].choices)
    section = DOCS.split("## Commands", 1)[1].split("\n## ", 1)[0]
    assert re.findall(r"^\| `(\w+)", section, re.MULTILINE) == names


def keys(value: object) -> object:
    """The nested field names of a JSON value."""
    if isinstance(value, dict):
        return {key: keys(inner) for key, inner in value.items()}
    return [keys(inner) for inner in value] if isinstance(value, list) else None


def test_a_home_of_nobody_is_a_path_without_a_run(run: RunDir, capsys: Capture) -> None:
    assert "There is no run at" in refused(capsys, "status", "~nobody-of-this-name/first")
