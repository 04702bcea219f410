"""A stand-in for NVIDIA's management library, so that the GPU side runs where there is no GPU.

`fake_nvml.c` tells which values it takes from where. Headway loads it where HEADWAY_NVML_LIBRARY names it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("fake_nvml.c")
SONAME: Final = "libnvidia-ml.so.1"  # what pynvml asks the loader for: a library that bears it is found without a search


class FakeNvmlError(Exception):
    """The library cannot be built; the message holds the compiler's words."""


def build(folder: Path, *, compiler: str = "cc") -> Path:
    """Builds the library in `folder` unless a current one lies there, and returns its path.

    Two processes may build at once: each renames its own finished file into place. Raises FakeNvmlError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / SONAME
    if target.exists() and target.stat().st_mtime >= SOURCE.stat().st_mtime:
        return target
    unfinished = folder / f".{SONAME}.{os.getpid()}"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-pthread", f"-Wl,-soname,{SONAME}"]
    try:
        subprocess.run([*command, "-o", str(unfinished), str(SOURCE)], check=True, capture_output=True, text=True, timeout=60)
    except FileNotFoundError as error:
        raise FakeNvmlError(f"the stand-in for NVML needs a C compiler and there is no {compiler!r}: install gcc.") from error
    except subprocess.CalledProcessError as error:
        raise FakeNvmlError(f"{SOURCE.name} did not compile: {error.stderr.strip()}") from error
    except subprocess.TimeoutExpired as error:
        raise FakeNvmlError(f"{SOURCE.name} did not compile within 60 s.") from error
    unfinished.replace(target)
    return target
