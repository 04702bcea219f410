"""Run with the engine's own Python (any from 3.8 on, whatever is installed there): prints one line of JSON about it.

Imports nothing of ours, and of others only torch, each guarded: what fails is told, not raised.
"""

from __future__ import annotations

import json
import platform
import sys
from importlib import metadata
from typing import Any


def installed_version(name: str) -> str | None:
    """The version of an installed package, without importing it; None where it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def torch_facts() -> dict[str, Any]:
    """What torch sees of GPUs; `torch_error` where it cannot be asked."""
    try:
        import torch
    except Exception as error:  # noqa: BLE001 - a broken library raises anything
        return {"torch_error": f"{type(error).__name__}: {error}"}
    facts: dict[str, Any] = {"cuda_build": torch.version.cuda, "devices": [], "architectures": []}
    try:
        facts["architectures"] = list(torch.cuda.get_arch_list())
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            facts["devices"].append(
                {
                    "name": properties.name,
                    "capability": [properties.major, properties.minor],
                    "memory_bytes": properties.total_memory,
                }
            )
        if torch.version.cuda is not None and not facts["devices"]:
            torch.cuda.init()  # raises with the driver's words
    except Exception as error:  # noqa: BLE001 - likewise
        facts["cuda_error"] = f"{type(error).__name__}: {error}"
    return facts


if __name__ == "__main__":
    told = {"python": platform.python_version(), "executable": sys.executable}
    versions = {"sglang": installed_version("sglang"), "torch": installed_version("torch")}
    print("HEADWAY " + json.dumps({**told, **versions, **torch_facts()}))
