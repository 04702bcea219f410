"""Processes as Linux shows them in /proc: who they are, which session they are in, whose children they are, which port they
listen on. Knows nothing of servers; identity.py decides what is ours."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_DEAD_STATES = frozenset("ZXx")  # a zombie holds nothing but its number
_LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp
_LOOPBACK_OR_ANY = frozenset(
    {"0100007F", "00000000", "0" * 32, "00000000000000000000000001000000", "0" * 16 + "FFFF00000100007F"}
)


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """A process for ever: its number and its start in clock ticks after boot. The wall-clock start (psutil's create_time)
    moves when the clock is set, ticks do not; a reused number has other ticks."""

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One line of /proc/PID/stat."""

    mark: ProcessMark
    state: str
    parent: int
    session: int

    @property
    def alive(self) -> bool:
        """Running, sleeping or stopped: not a zombie."""
        return self.state not in _DEAD_STATES


def boot_id() -> str:
    """Identifies this boot: ticks of another boot mean nothing."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def read_stat(pid: int) -> ProcessStat | None:
    """The process of that number, a zombie too; None where there is none."""
    try:  # thousands are read in a row: without Path and text decoding this takes half the time
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        line = os.read(descriptor, 4096)
    except OSError:
        return None  # it ended in between
    finally:
        os.close(descriptor)
    # The name stands in parentheses and may itself hold blanks and parentheses.
    fields = line[line.rfind(b")") + 2 :].split()
    return ProcessStat(ProcessMark(pid, int(fields[19])), chr(fields[0][0]), int(fields[1]), int(fields[3]))


def all_processes() -> dict[int, ProcessStat]:
    """Every process that can be seen, by number."""
    found: dict[int, ProcessStat] = {}
    for entry in os.listdir(_PROC):
        if entry.isdigit() and (stat := read_stat(int(entry))) is not None:
            found[stat.mark.pid] = stat
    return found


def is_alive(mark: ProcessMark) -> bool:
    """Whether this very process still runs (a zombie or a reused number does not count)."""
    stat = read_stat(mark.pid)
    return stat is not None and stat.mark == mark and stat.alive


def descendants(root: int, processes: dict[int, ProcessStat]) -> set[int]:
    """The numbers of all children of `root`, and theirs."""
    children: dict[int, list[int]] = {}
    for stat in processes.values():
        children.setdefault(stat.parent, []).append(stat.mark.pid)
    found: set[int] = set()
    waiting = [root]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def read_environ(pid: int) -> dict[str, str] | None:
    """The environment a process was started with; None where it may not be read. A process that renamed itself
    (setproctitle, as SGLang's scheduler does) may show rubbish here."""
    try:
        raw = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    pairs = (item.partition(b"=") for item in raw.split(b"\0") if b"=" in item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def command_line(pid: int) -> str:
    """How a process was called, in one line; its bare name where that cannot be read."""
    try:
        raw = (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").strip()
        return os.fsdecode(raw or (_PROC / str(pid) / "comm").read_bytes().strip())
    except OSError:
        return "?"


def listening_inodes(port: int) -> set[str]:
    """Socket inodes that listen on `port` on the loopback address or on all addresses."""
    inodes: set[str] = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            address, _, hex_port = fields[1].rpartition(":")
            if fields[3] == _LISTEN and int(hex_port, 16) == port and address in _LOOPBACK_OR_ANY:
                inodes.add(fields[9])
    return inodes


def holders(inodes: set[str], pids: Iterable[int]) -> set[int]:
    """Which of `pids` hold one of these sockets. Processes whose files may not be read are left out."""
    wanted = {f"socket:[{inode}]" for inode in inodes}
    found: set[int] = set()
    if not wanted:
        return found
    for pid in pids:
        folder = _PROC / str(pid) / "fd"
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            try:
                if os.readlink(folder / name) in wanted:
                    found.add(pid)
                    break
            except OSError:
                continue  # closed since it was listed
    return found


def io_bytes(pid: int) -> int | None:
    """Bytes read and written so far, page cache and disk (mapped files show up in the disk's share only)."""
    try:
        lines = (_PROC / str(pid) / "io").read_text().splitlines()
    except OSError:
        return None
    counts = {name: int(value) for name, _, value in (line.partition(": ") for line in lines)}
    return counts.get("rchar", 0) + counts.get("wchar", 0) + counts.get("read_bytes", 0)


def resident_bytes(pid: int) -> int | None:
    """Memory in RAM, shared pages included."""
    try:
        return int((_PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return None


def send_signal(mark: ProcessMark, number: signal.Signals) -> bool:
    """Signals this very process; False where it is gone. A handle is opened before the look at the start time, so a number
    reused in between is never hit."""
    try:
        handle = os.pidfd_open(mark.pid)
    except OSError:
        return False
    try:
        if not is_alive(mark):
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True
