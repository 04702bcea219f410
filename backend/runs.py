"""Where runs lie and how one is found by its name. Making one is `control`'s work."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from backend.run_dir import RunDir, RunDirError


def runs_folder() -> Path:
    """The folder of all runs: $HEADWAY_RUNS, else ./runs. Absolute; it need not exist yet."""
    return Path(os.path.expanduser(os.environ.get("HEADWAY_RUNS") or "runs")).absolute()


def list_runs(runs: Path) -> list[RunDir]:
    """Every run of a folder, by name. What has no run.toml is none. Raises RunDirError where it cannot be read."""
    try:
        folders = sorted(p for p in runs.iterdir() if not p.name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunDirError(f"{runs} cannot be read as the folder of runs ({error.strerror}).") from None
    return [RunDir(p) for p in folders if _holds_config(p)]


def find_run(text: str, runs: Path) -> RunDir:
    """A run by its name in `runs` or by its path. Raises RunDirError, with the nearest names, where there is none."""
    named = Path(text).name == text and text not in ("", ".", "..")
    places = ([runs / text] if named else []) + [Path(os.path.abspath(os.path.expanduser(text)))]
    for place in places:
        run = RunDir(place)
        if _holds_config(place):
            return run
    for place in places:
        if place.is_dir():
            raise RunDirError(
                f"{place} holds no run.toml that you may see: it is no run, or its creation was cut short. Remove the folder "
                f"and create the run again, or name another one."
            )
    if not named:
        raise RunDirError(f"There is no run at {places[0]}. `list` shows the runs of {runs}.")
    return _raise_unknown(text, runs)


def command_name(run: RunDir) -> str:
    """How a run is named in a command: by its name where that is enough, else by its path, quoted for a shell."""
    return run.name if run.root.parent == runs_folder() else shlex.quote(str(run.root))


def nearest(name: str, names: Iterable[str], *, what: str) -> str:
    """A sentence that points from an unknown name to those that are there."""
    known = list(names)
    close = get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    if not known:
        return f"There are no {what} yet."
    shown = ", ".join(known[:10]) + (f" and {len(known) - 10} more" if len(known) > 10 else "")
    return f"The {what} there are: {shown}."


def _holds_config(folder: Path) -> bool:
    # Path.is_file() would raise for a folder of somebody else, and hide all other runs
    return os.path.isfile(folder / "run.toml")


def _raise_unknown(name: str, runs: Path) -> RunDir:
    hint = nearest(name, (run.name for run in list_runs(runs)), what="runs")
    raise RunDirError(f"There is no run {name!r} in {runs}. {hint}")
