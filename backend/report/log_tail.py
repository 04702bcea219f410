"""What a page shows of a log: a tail that grows in place, or the lines that hold some words. Secrets are taken out.

`logs.py` gives the terminal the log as it is; here somebody else may look.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from backend.report.formatting import plain
from backend.report.logs import last_lines, last_state
from backend.report.redaction import without_secrets
from backend.run_dir import RunDir, RunDirError

FIRST_LINES: Final = 200  # shown when a log is opened
GROWN_BYTES: Final = 100_000  # a tail that grew larger begins anew
SEARCHED_LINES: Final = 20_000
SHOWN_MATCHES: Final = 200
LINE_CHARACTERS: Final = 2000


@dataclass(frozen=True, slots=True)
class Anchor:
    """Where a shown tail begins, so that what was read does not move when lines are added."""

    inode: int
    offset: int


@dataclass(frozen=True, slots=True)
class LogText:
    """Lines to show, and where they begin."""

    text: str
    lines: int
    anchor: Anchor | None = None
    searched: int = 0  # lines that were looked through, of a search


def log_names(run: RunDir) -> list[str]:
    """The replicas that have a log, in order; "supervisor" first where it has one."""
    servers = sorted(
        (p.name.removeprefix("server-").removesuffix(".log") for p in run.logs.glob("server-*.log")),
        key=lambda name: (len(name), name),
    )
    return (["supervisor"] if run.supervisor_log().is_file() else []) + servers


def log_path(run: RunDir, name: str) -> Path:
    """The file of one of `log_names`. Raises RunDirError for any other name."""
    if name not in log_names(run):
        raise RunDirError(f"{run.name} has no log of {plain(name, keep='')} any more.")
    return run.supervisor_log() if name == "supervisor" else run.server_log(name)


def read_tail(path: Path, anchor: Anchor | None) -> LogText:
    """The lines from `anchor` on; the last ones, with a new anchor, where there is none or the file is another one.

    Raises RunDirError.
    """
    try:
        with path.open("rb") as log:
            there = path.stat()
            same = anchor is not None and anchor.inode == there.st_ino and anchor.offset <= there.st_size
            if anchor is None or not same or there.st_size - anchor.offset > GROWN_BYTES:
                anchor = Anchor(there.st_ino, _start_of_last_lines(log, there.st_size))
            log.seek(anchor.offset)
            content = log.read(GROWN_BYTES * 2)
    except OSError as error:
        raise RunDirError(f"{path} cannot be read ({error.strerror}).") from None
    lines = [shown(last_state(line)) for line in content.removesuffix(b"\n").split(b"\n")] if content else []
    return LogText("\n".join(lines), len(lines), anchor)


def search(path: Path, words: str) -> LogText:
    """The last lines that hold `words`, whatever their case, among the last 20,000. Raises RunDirError."""
    lines, _ = last_lines(path, SEARCHED_LINES)
    wanted = words.casefold()
    found = [line for line in map(shown, lines) if wanted in line.casefold()]
    return LogText("\n".join(found[-SHOWN_MATCHES:]), len(found), searched=len(lines))


def shown(line: str) -> str:
    """A line as it may be shown: no secret, no control characters, not endless."""
    cut = line if len(line) <= LINE_CHARACTERS * 2 else line[: LINE_CHARACTERS * 2]
    safe = plain(without_secrets(cut), keep="\t")
    return safe if len(safe) <= LINE_CHARACTERS else f"{safe[:LINE_CHARACTERS]}…"


def _start_of_last_lines(log: IO[bytes], end: int) -> int:
    """Where the last lines begin, at most `GROWN_BYTES` / 2 before the end."""
    start = max(0, end - GROWN_BYTES // 2)
    log.seek(start)
    block = log.read(end - start)
    breaks = [i for i, byte in enumerate(block) if byte == 0x0A and i < len(block) - 1]
    if len(breaks) >= FIRST_LINES:
        return start + breaks[-FIRST_LINES] + 1
    return start if start == 0 or not breaks else start + breaks[0] + 1
