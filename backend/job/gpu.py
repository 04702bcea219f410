"""What the GPUs say about themselves, through NVML (nvidia-ml-py): one sample a GPU or MIG slice, who computes on it.

Covered: choosing GPUs, each field guarded on its own, a GPU that is lost and comes back. Left to others: the questions
themselves (`gpu_fields.py`), how often to ask, what to make of an answer. Calls block (a sick driver for seconds), so
they belong in a thread, one at a time. HEADWAY_NVML_LIBRARY names another libnvidia-ml.so.1 than the loader finds.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from backend.job.gpu_fields import NOT_HERE, QUESTIONS, GpuProcess, memory, processes
from backend.records import Event, Severity
from backend.telemetry import GpuSample

ASK_AGAIN_S: Final = 600.0  # a field that a device does not support is asked for again so rarely
REOPEN_FIRST_S: Final = 5.0
REOPEN_MAX_S: Final = 300.0

# NVML's error numbers (they are part of its ABI; pynvml is imported only when a reader opens).
_LOST: Final = frozenset({1, 15, 16, 28})  # uninitialized, GPU is lost, reset required, GPU not found
_UNKNOWN: Final = 999  # what a container gets for every call once its access to the device is gone
_START_FAILURES: Final = {
    4: "This user may not use the NVIDIA driver: check the permissions of /dev/nvidiactl.",
    9: "The NVIDIA driver is not loaded: `nvidia-smi` should work first.",
    12: "There is no NVIDIA driver here (libnvidia-ml.so.1 was not found).",
    18: "The NVIDIA driver was updated and its loaded kernel module is older: reload the module or reboot.",
}


class GpuUnavailable(Exception):  # noqa: N818  # a state of the machine, not a fault of the program
    """The GPUs cannot be read; the message is a sentence that says why."""


@dataclass(slots=True)
class _Device:
    key: str  # UUID
    index: int  # in PCI order, as `nvidia-smi` shows it; a slice has its parent's
    name: str
    handle: Any
    lost: bool = False
    ask_again_at: dict[str, float] = field(default_factory=dict)


class GpuReader:
    """Reads the GPUs that `gpus` names: indices, UUIDs or unique beginnings of them, MIG UUIDs; None: all there are.

    NVML counts in PCI order and ignores CUDA_VISIBLE_DEVICES; `visible_gpus` turns that variable into `gpus`.
    """

    def __init__(self, gpus: Sequence[int | str] | None = None) -> None:
        self._gpus = gpus
        self._nvml: Any = None
        self._devices: list[_Device] = []
        self._events: list[Event] = []
        self._reopen_at: float | None = None
        self._reopen_delay_s = REOPEN_FIRST_S

    def open(self) -> None:
        """Loads NVML and finds the GPUs. Raises GpuUnavailable: no driver, or a GPU of `gpus` that is not there."""
        self._nvml = _load_nvml()
        self._start()
        try:
            self._devices = _choose(self._list(), self._gpus)
        except self._nvml.NVMLError as error:
            raise GpuUnavailable(f"The NVIDIA driver does not list its GPUs: {error}.") from error

    def close(self) -> None:
        """Lets go of NVML; harmless when it is not open."""
        if self._nvml is not None:
            with suppress(self._nvml.NVMLError):  # a driver that is gone has nothing to close
                self._nvml.nvmlShutdown()
            self._nvml = None
        self._devices = []

    @property
    def keys(self) -> dict[str, str]:
        """UUID to "index: name" of each GPU read."""
        return {device.key: f"{device.index}: {device.name}" for device in self._devices}

    def read(self, now: float) -> list[GpuSample]:
        """A sample of each GPU at `now` (epoch seconds), in order; what a GPU does not tell is None."""
        if self._reopen_at is not None and now >= self._reopen_at:
            self._reopen()
        samples = [self._sample(device, now) for device in self._devices]
        if any(device.lost for device in self._devices):
            if self._reopen_at is None:
                self._reopen_at = now + self._reopen_delay_s
        else:
            self._reopen_at, self._reopen_delay_s = None, REOPEN_FIRST_S
        return samples

    def take_events(self) -> list[Event]:
        """What happened since last asked: `gpu.lost` and `gpu.back`, each once."""
        taken, self._events = self._events, []
        return taken

    def compute_processes(self) -> dict[str, tuple[GpuProcess, ...] | None]:
        """Who computes on each GPU, by UUID; None where the driver does not tell."""
        return {device.key: self._ask(device, processes) for device in self._devices}

    def memory_used_bytes(self) -> dict[str, int | None]:
        """Memory in use on each GPU, by UUID; None where the driver does not tell."""
        found = {device.key: self._ask(device, memory) or {} for device in self._devices}
        return {key: int(v["memory_used_bytes"]) if "memory_used_bytes" in v else None for key, v in found.items()}

    def _ask(self, device: _Device, question: Callable[[Any, Any], Any]) -> Any:
        try:
            return None if device.handle is None else question(self._nvml, device.handle)
        except self._nvml.NVMLError:
            return None  # `read` tells of a lost GPU; here it is one that does not answer

    def _sample(self, device: _Device, now: float) -> GpuSample:
        values: dict[str, Any] = {}
        failure = None if device.handle is not None else "the driver does not list it any more"
        if failure is None and not (device.lost and self._reopen_at is not None):
            failure = self._read_fields(device, now, values)
        if failure is not None:
            values.clear()
            self._report_lost(device, now, failure)
        elif device.lost and values:
            device.lost = False
            message = f"GPU {device.index} ({device.name}, {device.key}) answers again."
            self._events.append(Event(now, "gpu.back", f"gpu:{device.index}", message))
        return GpuSample(key=device.key, at=now, index=device.index, **values)

    def _read_fields(self, device: _Device, now: float, values: dict[str, Any]) -> str | None:
        """Fills `values`; returns why the GPU counts as lost, None if it does not."""
        unknown = None
        for name, question in QUESTIONS.items():
            if now < device.ask_again_at.get(name, 0.0):
                continue
            try:
                values.update(question(self._nvml, device.handle))
            except self._nvml.NVMLError as error:
                if error.value in _LOST:
                    return str(error)
                if error.value in NOT_HERE:
                    device.ask_again_at[name] = now + ASK_AGAIN_S
                elif error.value == _UNKNOWN:
                    unknown = str(error)
        return None if values else unknown

    def _report_lost(self, device: _Device, now: float, failure: str) -> None:
        if device.lost:
            return
        device.lost = True
        message = (
            f"GPU {device.index} ({device.name}, {device.key}) is lost: NVML says {failure!r}. Look for XID errors in the"
            " kernel's log; a GPU that does not come back needs a reset or a reboot (in a container: start it anew)."
        )
        self._events.append(Event(now, "gpu.lost", f"gpu:{device.index}", message, Severity.ERROR))

    def _reopen(self) -> None:
        """Starts NVML anew and looks for the devices again: their handles die with a lost GPU or driver."""
        self._reopen_delay_s = min(self._reopen_delay_s * 2, REOPEN_MAX_S)
        self._reopen_at = None
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()
        try:
            self._start()
            there = {device.key: device.handle for device in self._list()}
        except (GpuUnavailable, self._nvml.NVMLError):
            there = {}
        for device in self._devices:
            device.handle = there.get(device.key)
            device.ask_again_at.clear()

    def _start(self) -> None:
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise GpuUnavailable(_START_FAILURES.get(error.value, f"NVML does not start: {error}.")) from error

    def _list(self) -> list[_Device]:
        """Every GPU, each followed by its MIG slices; those whose handle cannot be had are left out."""
        nvml, found = self._nvml, []
        for index in range(nvml.nvmlDeviceGetCount()):
            with suppress(nvml.NVMLError):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                found.append(_Device(nvml.nvmlDeviceGetUUID(handle), index, nvml.nvmlDeviceGetName(handle), handle))
                found += _slices(nvml, handle, index)
        return found


def visible_gpus(environ: Mapping[str, str]) -> list[str] | None:
    """The GPUs that CUDA_VISIBLE_DEVICES names; None if it is not set. As CUDA does, stops at the first negative one.

    CUDA counts in PCI order only with CUDA_DEVICE_ORDER=PCI_BUS_ID (or equal GPUs); whoever starts a server sets it.
    """
    listed = environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return None
    chosen: list[str] = []
    for word in (part.strip() for part in listed.split(",")):
        if not word or word.startswith("-"):
            break
        chosen.append(word)
    return chosen


def _load_nvml() -> Any:
    path = os.environ.get("HEADWAY_NVML_LIBRARY")
    if path:
        if not Path(path).exists():
            raise GpuUnavailable(f"HEADWAY_NVML_LIBRARY names {path}, which does not exist.")
        try:
            # pynvml asks for "libnvidia-ml.so.1", and the loader answers with a loaded library that bears this name.
            ctypes.CDLL(path)
        except OSError as error:
            raise GpuUnavailable(f"HEADWAY_NVML_LIBRARY names {path}, which cannot be loaded: {error}.") from error
    import pynvml

    return pynvml


def _choose(there: list[_Device], gpus: Sequence[int | str] | None) -> list[_Device]:
    if gpus is None:
        return [device for device in there if not device.key.startswith("MIG-")]
    chosen: list[_Device] = []
    for wanted in map(str, gpus):
        if wanted.isdecimal():
            fitting = [d for d in there if d.index == int(wanted) and not d.key.startswith("MIG-")]
        else:
            fitting = [d for d in there if d.key.startswith(wanted)]
        if len(fitting) != 1:
            seen = ", ".join(f"{d.index} ({d.key})" for d in there) or "none"
            problem = "fits several" if fitting else "is not there"
            raise GpuUnavailable(f"GPU {wanted} {problem}; the driver shows: {seen}.")
        chosen += fitting
    return chosen


def _slices(nvml: Any, parent: Any, index: int) -> list[_Device]:
    found: list[_Device] = []
    with suppress(nvml.NVMLError):  # no MIG on this GPU or driver
        if nvml.nvmlDeviceGetMigMode(parent)[0]:
            for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(parent)):
                with suppress(nvml.NVMLError):  # a place without a slice
                    handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, place)
                    found.append(_Device(nvml.nvmlDeviceGetUUID(handle), index, nvml.nvmlDeviceGetName(handle), handle))
    return found
