"""Runs are created whole or not at all, one supervisor is started, and what somebody wants is written exactly once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from backend import config as config_file
from backend import run_dir
from backend.config import ConfigError
from backend.control import ControlError
from backend.control import start as start_module
from backend.control.create import create
from backend.control.intents import (
    await_answer,
    current_setting,
    new_token,
    want_dataset,
    want_engine,
    want_redo,
    want_run,
    want_setting,
)
from backend.control.start import StartOutcome, start, supervisor_environment
from backend.heartbeat import SupervisorState, lock_is_held, read_heartbeat, supervisor_pid, supervisor_state
from backend.prompts import PromptFileError
from backend.records import RunPhase
from backend.run_dir import RunDir, RunDirError, open_ledger, open_state
from backend.runs import find_run, list_runs
from tests.made_run import CONFIG, beat, holding_lock, job_status, make_run, write_config, write_event

STAND_IN = (sys.executable, str(Path(__file__).with_name("stand_in_supervisor.py")))
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDir]:
    made = make_run(tmp_path)
    yield made
    pid = supervisor_pid(made)
    if pid is not None and lock_is_held(made):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_module, "SUPERVISOR", STAND_IN)


def rows(run: RunDir) -> list[tuple[str, str, dict[str, object]]]:
    with closing(open_state(run)) as con:
        found = con.execute("SELECT subject, action, value FROM intents ORDER BY id").fetchall()
    return [(r["subject"], r["action"], json.loads(r["value"])) for r in found]


def until_free(run: RunDir) -> None:
    deadline = time.monotonic() + 20
    while lock_is_held(run):
        assert time.monotonic() < deadline, "the supervisor did not leave"
        time.sleep(0.02)


# -- create --------------------------------------------------------------------------------------------------------------


def test_a_run_is_created_with_absolute_paths_and_frozen_files(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    settings = config_file.load(run.config)
    assert settings.frozen is not None
    assert settings.datasets[0].path == str(tmp_path / "prompts/alpha.jsonl")
    assert settings.datasets[1].path == str(tmp_path / "prompts/*.jsonl")
    assert [Path(f.path).name for f in settings.frozen.prompt_files["beta"]] == ["alpha.jsonl", "beta.jsonl"]
    assert len(settings.frozen.fingerprint) >= 16
    assert run.logs.is_dir()
    assert run.servers.stat().st_mode & 0o777 == 0o700


def test_relative_programs_models_and_keys_are_made_absolute_but_not_hub_names(tmp_path: Path) -> None:
    (tmp_path / "models/tiny").mkdir(parents=True)
    extra = '\n[api.other]\nbase_url = "http://x"\nmodel = "m"\napi_key_file = "key"\n'
    text = CONFIG.replace('path = "tiny"', 'path = "models/tiny"').replace(
        'kind = "simulated"', 'kind = "local"\npython = "venv/bin/python"'
    )
    settings = config_file.load(create(write_config(tmp_path, text=text + extra), tmp_path / "runs").config)
    assert settings.model.path == str(tmp_path / "models/tiny")
    assert settings.engine.python == str(tmp_path / "venv/bin/python")
    assert settings.api["other"].api_key_file == str(tmp_path / "key")
    hub = create(write_config(tmp_path, "hub", CONFIG.replace('path = "tiny"', 'path = "org/name"')), tmp_path / "runs")
    assert config_file.load(hub.config).model.path == "org/name"


def test_the_lengths_of_a_simulated_engine_lie_beside_its_configuration(tmp_path: Path) -> None:
    args = 'kind = "simulated"\nargs = ["--speed", "2", "--lengths", "own.json", "--load-s", "1"]'
    config = write_config(tmp_path, text=CONFIG.replace('kind = "simulated"', args))
    settings = config_file.load(create(config, tmp_path / "runs").config)
    assert settings.engine.args == ["--speed", "2", "--lengths", str(tmp_path / "own.json"), "--load-s", "1"]


def test_an_existing_run_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    before = run.config.read_bytes()
    with pytest.raises(ControlError, match=r"exists already.*start .*demo"):
        make_run(tmp_path)
    assert run.config.read_bytes() == before
    assert [p.name for p in run.root.parent.iterdir()] == ["demo"]


def test_a_folder_that_is_no_run_is_not_replaced(tmp_path: Path) -> None:
    other = tmp_path / "runs/demo"
    other.mkdir(parents=True)
    (other / "precious.txt").write_text("mine")
    with pytest.raises(ControlError, match="in the way"):
        make_run(tmp_path)
    assert (other / "precious.txt").read_text() == "mine"


def test_nothing_is_left_of_a_run_whose_prompts_are_missing(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    (tmp_path / "prompts/alpha.jsonl").unlink()
    with pytest.raises(PromptFileError, match="alpha"):
        create(config, tmp_path / "runs")
    assert list_runs(tmp_path / "runs") == []
    assert not (tmp_path / "runs").exists()


def test_nothing_is_left_of_a_run_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(config_file, "save", refuse)
    with pytest.raises(ControlError, match="No space left"):
        make_run(tmp_path)
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_network_file_system_is_refused_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_dir, "file_system_type", lambda *_: "nfs4")
    with pytest.raises(RunDirError, match="nfs4"):
        make_run(tmp_path)
    assert not (tmp_path / "runs").exists()


# -- finding -------------------------------------------------------------------------------------------------------------


def test_a_run_is_found_by_name_and_by_path(run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_run("demo", tmp_path / "runs") == run
    assert find_run(str(run.root), tmp_path / "elsewhere") == run
    monkeypatch.chdir(tmp_path / "runs")
    assert find_run("./demo/", tmp_path / "elsewhere") == run


def test_an_unknown_run_names_the_nearest(run: RunDir) -> None:
    with pytest.raises(RunDirError, match="Did you mean demo"):
        find_run("dmeo", run.root.parent)
    with pytest.raises(RunDirError, match="no run at"):
        find_run("some/where", run.root.parent)


def test_a_half_made_folder_is_no_run(run: RunDir) -> None:
    run.config.unlink()
    with pytest.raises(RunDirError, match=r"no run\.toml"):
        find_run("demo", run.root.parent)
    assert list_runs(run.root.parent) == []


# -- intents -------------------------------------------------------------------------------------------------------------


def test_every_wish_is_one_row_with_its_subject_and_value(run: RunDir) -> None:
    want_run(run, "running", "me")
    want_run(run, "stopped", "me", now=True)
    want_engine(run, "stopped", "me")
    want_dataset(run, "alpha", "paused", "me", now=True)
    want_dataset(run, "alpha", "running", "me")
    want_dataset(run, "beta", "killed", "me")
    want_redo(run, "beta", ["empty", "degenerate"], "me")
    want_setting(run, "concurrency", "96", "me")
    assert rows(run) == [
        ("run", "state", {"want": "running"}),
        ("run", "state", {"want": "stopped", "now": True}),
        ("engine", "state", {"want": "stopped"}),
        ("dataset:alpha", "state", {"want": "paused", "now": True}),
        ("dataset:alpha", "state", {"want": "running"}),
        ("dataset:beta", "state", {"want": "killed"}),
        ("dataset:beta", "redo", {"outcomes": ["empty", "degenerate"]}),
        ("run", "set", {"key": "concurrency", "value": 96}),
    ]


def test_the_same_token_is_one_wish(run: RunDir) -> None:
    token = new_token()
    first = want_run(run, "stopped", "me", token=token)
    assert want_run(run, "stopped", "me", token=token) == first
    assert len(rows(run)) == 1


def test_what_does_not_exist_is_refused_with_what_does(run: RunDir) -> None:
    with pytest.raises(ControlError, match="Did you mean alpha"):
        want_dataset(run, "alhpa", "paused", "me")
    with pytest.raises(ControlError, match="The datasets there are: alpha, beta"):
        want_redo(run, "zzz", ["empty"], "me")
    with pytest.raises(ControlError, match="Did you mean empty"):
        want_redo(run, "alpha", ["emtpy"], "me")
    with pytest.raises(ControlError, match="at least one"):
        want_redo(run, "alpha", [], "me")
    with pytest.raises(ConfigError):
        want_setting(run, "no_such_key", "1", "me")
    assert rows(run) == []


def test_an_answer_is_awaited_and_its_absence_is_none(run: RunDir) -> None:
    intent = want_run(run, "stopped", "me")
    assert await_answer(run, intent, 0.0) is None
    with closing(open_state(run)) as con:
        con.execute("INSERT INTO intent_answers VALUES (?, 1.0, 0, 'Not today.')", (intent.id,))
    answer = await_answer(run, intent, 0.0)
    assert answer is not None
    assert (answer.accepted, answer.message) == (False, "Not today.")


def test_a_setting_is_what_was_accepted_last_else_what_is_configured(run: RunDir) -> None:
    assert current_setting(run, "concurrency") == 8
    assert current_setting(run, "order") == ["alpha", "beta"]
    assert current_setting(run, "datasets.alpha.token_budget") == 100000
    with closing(open_ledger(run)) as con:
        for token, value in (("a", 16), ("b", 32)):
            con.execute(
                "INSERT INTO accepted_intents (token, at, who, subject, action, value) VALUES (?, 1, 'me', 'run', 'set', ?)",
                (token, json.dumps({"key": "concurrency", "value": value})),
            )
    assert current_setting(run, "concurrency") == 32


# -- the supervisor's state ----------------------------------------------------------------------------------------------


def test_the_lock_and_the_heartbeat_tell_the_supervisors_state(run: RunDir) -> None:
    assert supervisor_state(run, 100.0) is SupervisorState.NEVER_STARTED
    with holding_lock(run, changed_at=95.0):
        assert supervisor_state(run, 100.0) is SupervisorState.ALIVE  # it took the lock and has not beaten yet
        assert supervisor_state(run, 110.0) is SupervisorState.NOT_ANSWERING
        beat(run, job_status(), at=109.0)
        assert supervisor_state(run, 110.0) is SupervisorState.ALIVE
        assert supervisor_state(run, 119.1) is SupervisorState.NOT_ANSWERING
    assert supervisor_state(run, 110.0) is SupervisorState.DEAD
    beat(run, job_status(phase=RunPhase.FINISHED), at=111.0)
    assert supervisor_state(run, 112.0) is SupervisorState.LEFT
    with holding_lock(run, changed_at=150.0):
        assert supervisor_state(run, 151.0) is SupervisorState.ALIVE  # a new life, the heartbeat is the former one's


def test_looking_at_the_lock_does_not_keep_it(run: RunDir) -> None:
    run.lock.touch()
    assert not lock_is_held(run)
    with holding_lock(run, changed_at=1.0):
        assert lock_is_held(run)
        assert lock_is_held(run)


# -- start ---------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("stand_in")
def test_a_started_supervisor_is_alive_in_a_session_of_its_own(run: RunDir) -> None:
    result = start(run, "me")
    assert result.outcome is StartOutcome.STARTED
    assert result.pid is not None
    assert os.getsid(result.pid) == result.pid
    assert Path(f"/proc/{result.pid}/cwd").readlink() == Path("/")
    assert supervisor_state(run, time.time()) is SupervisorState.ALIVE
    again = start(run, "me")
    assert (again.outcome, again.pid) == (StartOutcome.ALREADY_RUNNING, result.pid)
    want_run(run, "stopped", "me")
    until_free(run)
    assert supervisor_state(run, time.time()) is SupervisorState.LEFT
    assert start(run, "me").outcome is StartOutcome.STARTED


@pytest.mark.usefixtures("stand_in")
def test_a_killed_supervisor_is_dead_and_can_be_started_again(run: RunDir) -> None:
    first = start(run, "me")
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    until_free(run)
    assert supervisor_state(run, time.time()) is SupervisorState.DEAD
    second = start(run, "me")
    assert second.outcome is StartOutcome.STARTED
    assert second.pid != first.pid


def test_three_starts_at_once_start_exactly_one(run: RunDir) -> None:
    code = (
        "import sys; from backend.control import start as s; from backend.run_dir import RunDir; from pathlib import Path\n"
        f"s.SUPERVISOR = {STAND_IN!r}\n"
        "result = s.start(RunDir(Path(sys.argv[1])), 'me'); print(result.outcome.value, result.pid)"
    )
    starters = [
        subprocess.Popen([sys.executable, "-c", code, str(run.root)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    told = sorted(p.communicate(timeout=60)[0].strip() for p in starters)
    pid = supervisor_pid(run)
    assert told == [f"already running {pid}", f"already running {pid}", f"started {pid}"]


def test_a_supervisor_that_fails_is_told_with_its_last_words(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    run.supervisor_log().write_text("words of a former life\n")
    monkeypatch.setattr(start_module, "SUPERVISOR", (*STAND_IN, "--fail", "no such model"))
    result = start(run, "me")
    assert result.outcome is StartOutcome.FAILED
    assert result.reason is not None
    assert "exit code 1: RuntimeError: no such model" in result.reason
    assert supervisor_state(run, time.time()) is SupervisorState.NEVER_STARTED


def test_the_last_error_event_is_a_better_reason_than_the_log(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    write_event(run, "An old failure.", at=1.0, severity="error")
    write_event(run, "The model folder is empty.", at=time.time() + 60, severity="error")
    monkeypatch.setattr(start_module, "SUPERVISOR", (*STAND_IN, "--fail", "in the log"))
    assert "The model folder is empty." in (start(run, "me").reason or "")


def test_a_supervisor_without_a_sign_of_life_is_said_to_be_slow(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_module, "SUPERVISOR", (*STAND_IN, "--mute"))
    result = start(run, "me", timeout_s=0.3)
    assert result.outcome is StartOutcome.SLOW
    assert result.pid is not None
    os.kill(result.pid, signal.SIGKILL)


def test_the_supervisor_finds_the_code_and_not_the_metrics_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "/tmp/metrics")
    monkeypatch.setenv("PYTHONPATH", "lib")
    environment = supervisor_environment()
    assert "PROMETHEUS_MULTIPROC_DIR" not in environment
    assert environment["PYTHONPATH"].split(os.pathsep) == [str(ROOT), os.path.abspath("lib")]


def test_a_heartbeat_of_another_version_is_told_in_words(run: RunDir) -> None:
    beat(run, job_status(), at=1.0)
    with closing(open_state(run)) as con:
        con.execute("UPDATE heartbeat SET phase = 'dreaming'")
    with pytest.raises(RunDirError, match="another version"):
        read_heartbeat(run)
