"""Processes as /proc shows them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from backend.job.ports import describe_holder, free_port, is_free
from backend.job.process_tree import (
    all_processes,
    command_line,
    descendants,
    holders,
    io_bytes,
    is_alive,
    listening_inodes,
    read_environ,
    read_stat,
    resident_bytes,
    send_signal,
)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A sleeping child in a session of its own."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", "import time; time.sleep(60)"], start_new_session=True, env={"MARK": "a=b"}
    )
    yield process
    process.kill()
    process.wait()


def test_a_child_is_seen_with_its_session_parent_and_environment(child: subprocess.Popen[bytes]) -> None:
    stat = read_stat(child.pid)
    assert stat is not None
    assert stat.session == child.pid
    assert stat.parent == os.getpid()
    assert child.pid in descendants(os.getpid(), all_processes())
    assert read_environ(child.pid) == {"MARK": "a=b"}
    assert "time.sleep(60)" in command_line(child.pid)
    assert (io_bytes(child.pid) or 0) > 0
    assert (resident_bytes(child.pid) or 0) > 0


def test_a_zombie_is_dead_and_keeps_its_mark(child: subprocess.Popen[bytes]) -> None:
    stat = read_stat(child.pid)
    assert stat is not None
    child.kill()
    deadline = time.monotonic() + 10
    while is_alive(stat.mark):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    zombie = read_stat(child.pid)
    assert zombie is not None
    assert zombie.mark == stat.mark
    assert not zombie.alive
    assert not send_signal(stat.mark, signal.SIGTERM)


def test_a_reused_number_is_neither_alive_nor_signalled(child: subprocess.Popen[bytes]) -> None:
    stat = read_stat(child.pid)
    assert stat is not None
    former = replace(stat.mark, start_ticks=stat.mark.start_ticks - 1)
    assert not is_alive(former)
    assert not send_signal(former, signal.SIGKILL)
    assert is_alive(stat.mark)


def test_what_is_not_there_gives_none() -> None:
    gone = 2**22 + 1
    assert read_stat(gone) is None
    assert read_environ(gone) is None
    assert io_bytes(gone) is None
    assert resident_bytes(gone) is None
    assert command_line(gone) == "?"


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_the_holder_of_a_port_is_found(address: str) -> None:
    with socket.create_server((address, 0)) as server:
        port = server.getsockname()[1]
        assert holders(listening_inodes(port), [os.getpid(), 1]) == {os.getpid()}
        assert not is_free(port)
        assert f"pid {os.getpid()} (" in describe_holder(port)
    assert is_free(port)
    assert listening_inodes(port) == set()


def test_a_port_on_all_addresses_of_ipv6_is_not_free() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        assert not is_free(server.getsockname()[1])


def test_a_free_port_is_free() -> None:
    assert is_free(free_port())
