"""All runs of a folder at a glance, and the folders among them that are none, with the reason."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.config import ConfigError
from backend.heartbeat import has_table, lock_is_held, read_heartbeat, reading
from backend.report.formatting import plain
from backend.report.headline import share_done
from backend.report.status import read_status
from backend.report.views import RunView
from backend.run_dir import RunDir, RunDirError
from backend.runs import list_runs


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run. Times are epoch seconds."""

    view: RunView
    progress: float | None  # 0..1, None where a dataset has no limit or nothing is known
    started_at: float | None  # when a supervisor was first started
    size_bytes: int  # on disk, without what a link leads to


@dataclass(frozen=True, slots=True)
class RunList:
    """What lies in the folder of runs."""

    runs: tuple[RunLine, ...]  # newest first: by the last sign of life, else by creation
    broken: tuple[str, ...]  # sentences: which folder is no run that can be read, why, and what to do


def read_runs(folder: Path, now: float) -> RunList:
    """All runs below `folder`; `now` in epoch seconds. Raises RunDirError where the folder cannot be read."""
    lines, broken = [], []
    runs = list_runs(folder)
    for run in runs:
        try:
            view = read_status(run, now)
            lines.append(RunLine(view, share_done(view), _started_at(run), size_on_disk(run.root)))
        except (ConfigError, RunDirError) as error:
            broken.append(plain(f"{run.name}: {error}", keep=""))
    broken += [_no_run(path) for path in _other_folders(folder, {run.name for run in runs})]
    newest_first = sorted(lines, key=lambda line: (_last_sign(line), line.view.created_at or ""), reverse=True)
    return RunList(tuple(newest_first), tuple(broken))


def latest_run(runs: Sequence[RunDir]) -> RunDir | None:
    """The run to show where nobody names one: of those at work the one started last, else the one that lived last."""
    return max(runs, key=_liveliness, default=None)


def size_on_disk(folder: Path) -> int:
    """Bytes of all files below, as far as they can be seen; links are not followed."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
            except OSError:  # removed meanwhile
                continue
    return total


def _started_at(run: RunDir) -> float | None:
    with reading(run.state) as con:
        if con is None or not has_table(con, "events"):
            return None
        row = con.execute("SELECT at FROM events WHERE kind = 'run.started' ORDER BY id LIMIT 1").fetchone()
    return None if row is None else float(row["at"])


def _liveliness(run: RunDir) -> tuple[bool, float]:
    """What cannot be read counts as long dead."""
    try:
        if lock_is_held(run):
            return True, run.lock.stat().st_mtime
        heartbeat = read_heartbeat(run)
        return False, heartbeat.at if heartbeat is not None else run.config.stat().st_mtime
    except (RunDirError, OSError):
        return False, 0.0


def _last_sign(line: RunLine) -> float:
    return line.view.supervisor.heartbeat_at or line.started_at or 0.0


def _other_folders(folder: Path, known: set[str]) -> list[Path]:
    try:
        return sorted(p for p in folder.iterdir() if p.name not in known and not p.name.startswith(".") and p.is_dir())
    except OSError:
        return []


def _no_run(path: Path) -> str:
    words = (
        "holds no run.toml that you may see: it is no run, or its creation was cut short. Remove the folder and create it anew."
    )
    return plain(f"{path.name} {words}", keep="")
