"""`dashboard` finds a port, says which, serves the pages and ends with Ctrl-C or a service manager's stop."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from backend.commands.dashboard import DASHBOARD
from backend.commands.serving import ROOT, command, free_port


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on, with a neighbour that exists."""
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_taken_port_gives_way_to_a_later_one(taken: int) -> None:
    found = free_port("127.0.0.1", taken)
    assert found is not None
    assert found > taken


def test_an_address_of_another_machine_has_no_port() -> None:
    assert free_port("192.0.2.1", 8501) is None


def test_only_loopback_keeps_to_its_own_names() -> None:
    assert "--server.allowedHosts" not in command(DASHBOARD, "127.0.0.1", 8501)
    assert command(DASHBOARD, "0.0.0.0", 8501)[-2:] == ["--server.allowedHosts", "*"]


@pytest.mark.drill
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_from_any_folder_and_leaves_nothing_behind(how: signal.Signals, taken: int, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "backend", "dashboard", "--port", str(taken)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HEADWAY_RUNS": "runs", "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        assert f"Port {taken} is taken" in process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
        assert address is not None
        with pytest.raises(urllib.error.HTTPError, match="404"), urllib.request.urlopen(f"{address[0]}/api/pulse?run=none"):
            pass
        rebound = urllib.request.Request(f"{address[0]}/api/pulse?run=none", headers={"Host": "elsewhere.example"})
        with pytest.raises(urllib.error.HTTPError, match="400"), urllib.request.urlopen(rebound):
            pass
    finally:
        process.send_signal(how)
        code = process.wait(20)
    assert code == 0
    process.stdout.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"{address[0]}/_stcore/health", timeout=2)
