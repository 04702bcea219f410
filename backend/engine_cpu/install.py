"""Installs the CPU engine: an environment with SGLang, and the tiny model. Repeating it is harmless and quick.

A stamp with a hash of everything that went in is written last, by rename. Without a valid stamp the part is made
anew from nothing, so an interrupted installation leaves nothing half done behind.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from backend.engine_cpu.place import EnginePlace, engine_env

OLDEST_PYTHON: Final = (3, 11)
DISK_NEEDED_GB: Final = 4.0
STEP_LIMIT_S: Final = 1800


class InstallError(Exception):
    """The engine cannot be installed; the message says why and what to do."""


def install(place: EnginePlace) -> bool:
    """Makes whatever is missing or out of date. Returns False if there was nothing to do.

    Raises InstallError with the remedy.
    """
    if not place.requirements.is_file():
        raise InstallError(f"{place.requirements} is missing. Run this from a complete checkout of Headway.")
    place.folder.mkdir(exist_ok=True)
    with _alone(place.folder / "lock"):
        venv_stamp, model_stamp = place.folder / "venv.stamp", place.folder / "model.stamp"
        venv_hash = hash_of([place.requirements], extra=[platform.python_version(), str(place.venv)])
        model_hash = hash_of([Path(__file__).with_name("make_model.py"), Path(__file__).with_name("corpus.txt")])
        venv_stale = not (_stamped(venv_stamp, venv_hash) and place.python.exists())
        model_stale = not (_stamped(model_stamp, model_hash) and (place.model / "config.json").is_file())
        if venv_stale:
            check_machine(place.folder)
            venv_stamp.unlink(missing_ok=True)
            _make_venv(place)
            _stamp(venv_stamp, venv_hash)
        if model_stale:
            model_stamp.unlink(missing_ok=True)
            _make_model(place)
            _stamp(model_stamp, model_hash)
        return venv_stale or model_stale


def check_machine(folder: Path) -> None:
    """Raises InstallError if this Python or this disk cannot hold the engine."""
    if sys.version_info < OLDEST_PYTHON:
        raise InstallError(
            f"Python {platform.python_version()} is too old for SGLang. Use 3.11 or newer: make engine-cpu PYTHON=python3.11"
        )
    if importlib.util.find_spec("ensurepip") is None:
        raise InstallError("this Python cannot make environments. Remedy: apt-get install python3-venv")
    free_gb = shutil.disk_usage(folder).free / 1e9
    if free_gb < DISK_NEEDED_GB:
        raise InstallError(f"{folder}: {free_gb:.1f} GB free, {DISK_NEEDED_GB:.0f} GB needed. Free some disk space.")


def hash_of(files: Iterable[Path], extra: Iterable[str] = ()) -> str:
    """One hash over the contents of the files and the extra words."""
    digest = hashlib.sha256()
    for part in [*(file.read_bytes() for file in files), *(word.encode() for word in extra)]:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def torch_steps(pip: Sequence[str], pins: Mapping[str, str], index_url: str | None) -> list[list[str]]:
    """The pip commands that bring torch, best first; a later one is for when the earlier one failed.

    An index of CPU builds (the user names it) spares the CUDA packages that torch from the ordinary index needs.
    """
    torch, torchvision = f"torch=={pins['torch']}", f"torchvision=={pins['torchvision']}"
    steps = [[*pip, "install", torch]]
    if index_url:
        steps.insert(0, [*pip, "install", "--no-deps", "--index-url", index_url, torch, torchvision])
    return steps


def read_pins(requirements: Path) -> dict[str, str]:
    """Package to version, of a file whose lines all read `name==version`. Raises InstallError for any other line."""
    pins = {}
    for number, line in enumerate(requirements.read_text(encoding="utf-8").splitlines(), 1):
        words = line.split("#")[0].strip()
        if not words:
            continue
        name, found, version = words.partition("==")
        if not found:
            raise InstallError(f"{requirements}:{number}: {words!r} has no exact version. Write name==version.")
        pins[name.strip()] = version.strip()
    return pins


def _make_venv(place: EnginePlace) -> None:
    pins = read_pins(place.requirements)
    index_url = os.environ.get("TORCH_INDEX_URL")
    print(
        f"CPU engine: SGLang {pins['sglang']} and torch {pins['torch']} go into {place.venv}\n"
        "  needs about 1.6 GB of disk and 2 to 5 minutes, most of it for downloading"
    )
    if not index_url:
        print("  TORCH_INDEX_URL is not set: where pip finds only torch for CUDA, 4 GB more come along.")
        print("  To avoid that, set it to PyTorch's index of CPU wheels.")
    print("", end="", flush=True)
    _run([sys.executable, "-m", "venv", "--clear", str(place.venv)], "making the environment")
    pip = [str(place.python), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    _run_first_that_works(torch_steps(pip, pins, index_url), "installing torch")
    # The list is complete and SGLang's own is not wanted: it asks for CUDA kernels that a CPU cannot use.
    _run([*pip, "install", "--no-deps", "-r", str(place.requirements)], "installing SGLang and what it needs")


def _make_model(place: EnginePlace) -> None:
    fresh = place.folder / "model.new"
    shutil.rmtree(fresh, ignore_errors=True)
    script = Path(__file__).with_name("make_model.py")
    _run([str(place.python), str(script), str(fresh)], "making the model", env=os.environ | engine_env())
    shutil.rmtree(place.model, ignore_errors=True)
    fresh.rename(place.model)


def _run_first_that_works(commands: list[list[str]], doing: str) -> None:
    for command in commands[:-1]:
        try:
            return _run(command, doing)
        except InstallError as error:
            print(f"  {error}\n  trying the ordinary package index instead", flush=True)
    return _run(commands[-1], doing)


def _run(command: list[str], doing: str, env: Mapping[str, str] | None = None) -> None:
    """One step with its output kept back unless it fails. Raises InstallError."""
    print(f"  {doing} ...", flush=True)
    started = time.monotonic()
    try:
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=STEP_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"{doing} took longer than {STEP_LIMIT_S} s. Run `make engine-cpu` again.") from error
    if done.returncode != 0:
        words = "\n".join("    " + line for line in (done.stdout + done.stderr).strip().splitlines()[-12:])
        raise InstallError(f"{doing} failed ({done.returncode}):\n{words}\n  Mend that and run `make engine-cpu` again.")
    print(f"  {doing}: {time.monotonic() - started:.0f} s", flush=True)


def _stamped(stamp: Path, wanted: str) -> bool:
    return stamp.is_file() and stamp.read_text(encoding="ascii").strip() == wanted


def _stamp(stamp: Path, content: str) -> None:
    fresh = stamp.with_suffix(".new")
    fresh.write_text(content + "\n", encoding="ascii")
    fresh.replace(stamp)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Holds the lock; a second installation waits for the first one."""
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another installation is at work; waiting for it", flush=True)
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
