"""One supervisor a run, and a sign of life that needs no room."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from backend.heartbeat import SupervisorState, lock_is_held, state_of_lock, supervisor_pid, supervisor_words
from backend.job.lock import AlreadyRunningError, leave_words, supervisor_lock
from backend.run_dir import RunDir


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


def test_the_lock_names_its_holder_and_is_free_afterwards(run: RunDir) -> None:
    with supervisor_lock(run):
        assert lock_is_held(run)
        assert supervisor_pid(run) == os.getpid()
    assert not lock_is_held(run)


def test_a_second_supervisor_is_refused_with_the_pid_of_the_first(run: RunDir) -> None:
    with supervisor_lock(run), pytest.raises(AlreadyRunningError, match=f"pid {os.getpid()}"), supervisor_lock(run):
        pass
    with supervisor_lock(run):
        pass


def test_who_looks_whether_the_lock_is_held_does_not_keep_a_supervisor_from_starting(run: RunDir) -> None:
    run.lock.touch()
    script = "import fcntl, os, sys, time; fd = os.open(sys.argv[1], 0); fcntl.flock(fd, 1); print(flush=True); time.sleep(0.3)"
    with subprocess.Popen([sys.executable, "-S", "-c", script, str(run.lock)], stdout=subprocess.PIPE) as looker:
        assert looker.stdout is not None
        looker.stdout.readline()
        with supervisor_lock(run):
            assert supervisor_pid(run) == os.getpid()


def test_the_lock_is_free_once_its_holder_is_killed(run: RunDir) -> None:
    script = (
        "import pathlib, sys, time; from backend.job.lock import supervisor_lock; from backend.run_dir import RunDir\n"
        "with supervisor_lock(RunDir(pathlib.Path(sys.argv[1]))): print(flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(run.root)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert supervisor_pid(run) == holder.pid
        holder.kill()
    assert not lock_is_held(run)
    with supervisor_lock(run):
        assert supervisor_pid(run) == os.getpid()


def test_words_in_the_lock_are_a_sign_of_life_and_leave_the_pid_readable(run: RunDir) -> None:
    with supervisor_lock(run):
        os.utime(run.lock, (1.0, 1.0))
        assert state_of_lock(run, time.time()) is SupervisorState.NOT_ANSWERING
        leave_words(run, "The disk is full.")
        assert state_of_lock(run, time.time()) is SupervisorState.ALIVE
        assert (supervisor_pid(run), supervisor_words(run)) == (os.getpid(), "The disk is full.")
        leave_words(run, None)
        assert (supervisor_pid(run), supervisor_words(run)) == (os.getpid(), None)


def test_words_without_end_are_cut_to_what_needs_no_room(run: RunDir) -> None:
    with supervisor_lock(run):
        leave_words(run, "x\n\ud835" * 100_000)
        assert run.lock.stat().st_size <= 4096
        assert supervisor_pid(run) == os.getpid()
