"""GPUs as NVML tells of them, played by the stand-in library: fields on their own, lost GPUs, MIG, names of GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.job.gpu import ASK_AGAIN_S, REOPEN_FIRST_S, GpuReader, GpuUnavailable, visible_gpus
from backend.job.gpu_fields import GpuProcess, throttle_words
from backend.records import Severity
from backend.simulator import fake_nvml
from tests.job.gpu_box import GIB, Box

FIRST, SECOND = (f"GPU-fa4e000{i}-0000-4000-8000-000000000000" for i in (0, 1))


@pytest.fixture
def open_reader() -> Iterator[Callable[..., GpuReader]]:
    readers: list[GpuReader] = []

    def opened(gpus: list[int | str] | None = None) -> GpuReader:
        readers.append(GpuReader(gpus))
        readers[-1].open()
        return readers[-1]

    yield opened
    for reader in readers:
        reader.close()


def test_a_sample_is_in_our_units(box: Box, open_reader: Callable[..., GpuReader]) -> None:
    box(
        "0.util 83; 0.memutil 40; 0.mem_total_gib 141; 0.mem_used_gib 120.5; 0.power_w 612.5; 0.power_limit_w 700;"
        "0.energy_mj 7654321; 0.temp 71; 0.sm_mhz 1755; 0.mem_mhz 3201; 0.reasons 4; 0.ecc 2"
    )
    [sample] = open_reader().read(1000.0)
    assert (sample.key, sample.at, sample.index) == (FIRST, 1000.0, 0)
    assert (sample.utilization_percent, sample.memory_utilization_percent) == (83, 40)
    assert (sample.memory_used_bytes, sample.memory_total_bytes) == (int(120.5 * GIB), 141 * GIB)
    assert (sample.power_w, sample.power_limit_w, sample.energy_j) == (612.5, 700.0, 7654.321)
    assert (sample.temperature_c, sample.sm_clock_mhz, sample.memory_clock_mhz) == (71, 1755, 3201)
    assert (sample.throttled, sample.throttle_reasons, sample.ecc_errors_uncorrected) == (1.0, "software power cap", 2)


def test_values_move_while_the_reader_is_open(box: Box, open_reader: Callable[..., GpuReader]) -> None:
    reader = open_reader()
    for percent in (10, 20, 30):
        box(f"0.util {percent}")
        assert reader.read(percent)[0].utilization_percent == percent


@pytest.mark.parametrize(
    ("error", "missing"),
    [
        ("err.util 3", ("utilization_percent", "memory_utilization_percent")),
        ("err.mem 3", ("memory_used_bytes", "memory_total_bytes")),
        ("err.power 3", ("power_w",)),
        ("err.limit 3", ("power_limit_w",)),
        ("err.energy 3", ("energy_j",)),
        ("err.temp 3", ("temperature_c",)),
        ("err.clock 3", ("sm_clock_mhz", "memory_clock_mhz")),
        ("err.reasons 3", ("throttled", "throttle_reasons")),
        ("err.ecc 3", ("ecc_errors_uncorrected",)),
        ("mem_total_gib 0", ("memory_used_bytes", "memory_total_bytes")),
    ],
)
def test_a_field_that_is_not_supported_is_none_and_the_others_are_there(
    box: Box, open_reader: Callable[..., GpuReader], error: str, missing: tuple[str, ...]
) -> None:
    box(error)
    reader = open_reader()
    [sample] = reader.read(0.0)
    nones = {name for name in type(sample).__dataclass_fields__ if getattr(sample, name) is None}
    assert nones == set(missing)
    assert reader.take_events() == []


def test_an_unsupported_field_is_asked_for_again_only_rarely(box: Box, open_reader: Callable[..., GpuReader]) -> None:
    box("err.power 3")
    reader = open_reader()
    assert reader.read(0.0)[0].power_w is None
    box("power_w 100")
    assert reader.read(ASK_AGAIN_S - 1)[0].power_w is None
    assert reader.read(ASK_AGAIN_S)[0].power_w == 100


def test_a_passing_error_is_asked_for_again_at_once(box: Box, open_reader: Callable[..., GpuReader]) -> None:
    box("err.power 10")
    reader = open_reader()
    assert reader.read(0.0)[0].power_w is None
    box("power_w 100")
    assert reader.read(1.0)[0].power_w == 100


def test_an_older_driver_is_asked_the_older_way(box: Box, open_reader: Callable[..., GpuReader]) -> None:
    box(
        "missing.nvmlDeviceGetMemoryInfo_v2 1; missing.nvmlDeviceGetTemperatureV 1;"
        "missing.nvmlDeviceGetCurrentClocksEventReasons 1; temp 40; mem_used_gib 2; reasons 0"
    )
    [sample] = open_reader().read(0.0)
    assert (sample.temperature_c, sample.memory_used_bytes, sample.throttle_reasons) == (40, 2 * GIB, "")


def test_a_lost_gpu_is_one_event_and_no_figures_while_the_other_goes_on(
    box: Box, open_reader: Callable[..., GpuReader]
) -> None:
    box("count 2; util 50")
    reader = open_reader()
    assert [s.utilization_percent for s in reader.read(0.0)] == [50, 50]
    box("count 2; util 50; 1.err.all 15; 1.err.uuid 15")
    for second in range(1, 60):
        healthy, lost = reader.read(float(second))
        assert healthy.utilization_percent == 50
        assert (lost.utilization_percent, lost.power_w, lost.memory_used_bytes) == (None, None, None)
    [event] = reader.take_events()
    assert (event.kind, event.subject, event.severity, event.at) == ("gpu.lost", "gpu:1", Severity.ERROR, 1.0)
    assert "GPU 1 (NVIDIA H200 (simulated)" in event.message
    assert "GPU is lost" in event.message
    assert "reset or a reboot" in event.message


def test_a_gpu_that_comes_back_is_found_again_after_a_back_off(box: Box, open_reader: Callable[..., GpuReader]) -> None:
    reader = open_reader()
    box("err.all 15; err.init 9")
    seconds = [float(s) for s in range(20)]
    assert [reader.read(s)[0].power_w for s in seconds] == [None] * 20
    box("power_w 70")
    back = next(s for s in range(20, 100) if reader.read(float(s))[0].power_w == 70)
    assert 20 <= back <= 20 + 4 * REOPEN_FIRST_S
    assert [event.kind for event in reader.take_events()] == ["gpu.lost", "gpu.back"]
    assert reader.take_events() == []


def test_unknown_error_everywhere_means_lost_and_for_one_field_does_not(
    box: Box, open_reader: Callable[..., GpuReader]
) -> None:
    box("err.power 999")
    reader = open_reader()
    assert reader.read(0.0)[0].power_w is None
    assert reader.take_events() == []
    box("err.all 999")
    reader.read(1.0)
    assert [event.kind for event in reader.take_events()] == ["gpu.lost"]


def test_gpus_are_chosen_by_index_uuid_and_unique_beginning(box: Box, open_reader: Callable[..., GpuReader]) -> None:
    box("count 2")
    assert [s.key for s in open_reader([1]).read(0.0)] == [SECOND]
    assert [s.key for s in open_reader(["1", FIRST]).read(0.0)] == [SECOND, FIRST]
    assert [s.key for s in open_reader(["GPU-fa4e0001"]).read(0.0)] == [SECOND]
    assert [s.key for s in open_reader([]).read(0.0)] == []


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        ([7], f"GPU 7 is not there; the driver shows: 0 ({FIRST}), 1 ({SECOND})."),
        (["GPU-fa4e"], f"GPU GPU-fa4e fits several; the driver shows: 0 ({FIRST}), 1 ({SECOND})."),
    ],
)
def test_a_gpu_that_is_not_there_is_named(box: Box, gpus: list[int | str], words: str) -> None:
    box("count 2")
    with pytest.raises(GpuUnavailable) as refused:
        GpuReader(gpus).open()
    assert str(refused.value) == words


def test_cuda_visible_devices_is_read_as_cuda_does() -> None:
    assert visible_gpus({}) is None
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}) == []
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "2, 0"}) == ["2", "0"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "1,-1,2"}) == ["1"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "GPU-fa4e0001"}) == ["GPU-fa4e0001"]


def test_a_mig_slice_has_its_own_memory_and_no_utilisation(box: Box, open_reader: Callable[..., GpuReader]) -> None:
    box("count 2; 1.mig 2; 1.mig1.mem_total_gib 16; 1.mig1.mem_used_gib 9")
    slice_key = "MIG-fa4e0001-0001-4000-8000-000000000000"
    reader = open_reader([slice_key])
    [sample] = reader.read(0.0)
    assert (sample.key, sample.index) == (slice_key, 1)
    assert (sample.memory_used_bytes, sample.memory_total_bytes) == (9 * GIB, 16 * GIB)
    assert (sample.utilization_percent, sample.power_w, sample.energy_j) == (None, None, None)
    assert reader.take_events() == []


def test_a_gpu_in_mig_mode_has_no_utilisation_and_all_means_whole_gpus(box: Box, open_reader: Callable[..., GpuReader]) -> None:
    box("mig 2; power_w 300")
    [sample] = open_reader().read(0.0)
    assert (sample.key, sample.utilization_percent, sample.power_w) == (FIRST, None, 300)


def test_processes_and_used_memory_tell_whether_a_gpu_is_free(box: Box, open_reader: Callable[..., GpuReader]) -> None:
    box("count 2; 0.proc.4711 5000; 0.proc.4712 -1; 1.err.procs 3; 1.err.mem 4; 0.mem_used_gib 100")
    reader = open_reader()
    assert reader.compute_processes() == {FIRST: (GpuProcess(4711, 5000), GpuProcess(4712, None)), SECOND: None}
    assert reader.memory_used_bytes() == {FIRST: 100 * GIB, SECOND: None}
    assert reader.keys == {FIRST: "0: NVIDIA H200 (simulated)", SECOND: "1: NVIDIA H200 (simulated)"}


def test_files_of_several_servers_are_read_together(
    box: Box, open_reader: Callable[..., GpuReader], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "servers"
    folder.mkdir()
    monkeypatch.setenv("FAKE_NVML_DIR", str(folder))
    box("count 2")

    def replica(index: int, percent: int) -> None:
        unfinished = folder / f".{index}"
        unfinished.write_text(f"{index}.util {percent}\n")
        unfinished.replace(folder / f"replica-{index}.txt")

    reader = open_reader()
    replica(0, 11)
    replica(1, 22)
    assert [s.utilization_percent for s in reader.read(0.0)] == [11, 22]
    for percent in range(30, 40):
        replica(1, percent)
        assert [s.utilization_percent for s in reader.read(1.0)] == [11, percent]


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (0, ""),
        (0x1, "idle"),
        (0x44, "software power cap,hardware thermal slowdown"),
        (0x8001, "idle,reason 0x8000"),
    ],
)
def test_throttle_reasons_are_words(mask: int, words: str) -> None:
    assert throttle_words(mask) == words


@pytest.mark.parametrize(("reasons", "throttled"), [(0x0, 0.0), (0x1, 0.0), (0x4, 1.0), (0x21, 1.0), (0x100, 0.0)])
def test_an_idle_gpu_is_not_throttled(box: Box, open_reader: Callable[..., GpuReader], reasons: int, throttled: float) -> None:
    box(f"reasons {reasons}")
    assert open_reader().read(0.0)[0].throttled == throttled


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (9, "The NVIDIA driver is not loaded: `nvidia-smi` should work first."),
        (999, "NVML does not start: Unknown Error."),
    ],
)
def test_a_driver_that_does_not_start_is_told_in_a_sentence(box: Box, error: int, words: str) -> None:
    box(f"err.init {error}")
    with pytest.raises(GpuUnavailable) as refused:
        GpuReader().open()
    assert str(refused.value) == words


def test_a_library_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_NVML_LIBRARY", "/nowhere/libnvidia-ml.so.1")
    with pytest.raises(GpuUnavailable, match=r"HEADWAY_NVML_LIBRARY names /nowhere/libnvidia-ml\.so\.1, which does not"):
        GpuReader().open()


def run_python(code: str, **environ: str) -> str:
    root = Path(__file__).resolve().parents[2]
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("HEADWAY_", "FAKE_NVML"))}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=clean | environ, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def test_without_a_driver_the_reason_is_a_sentence(tmp_path: Path) -> None:
    """A process of its own, where no other test has loaded a library; the loader finds an empty file instead of a driver."""
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    code = (
        "from backend.job.gpu import GpuReader, GpuUnavailable\n"
        "try: GpuReader().open()\n"
        "except GpuUnavailable as error: print(error)\n"
    )
    said = run_python(code, LD_LIBRARY_PATH=str(tmp_path))
    assert said == "There is no NVIDIA driver here (libnvidia-ml.so.1 was not found)."


def test_importing_the_reader_does_not_import_pynvml() -> None:
    assert run_python("import sys, backend.job.gpu; print('pynvml' in sys.modules)") == "False"


def test_two_builds_of_the_library_are_one(tmp_path: Path) -> None:
    first = fake_nvml.build(tmp_path)
    made = first.stat().st_mtime_ns
    assert fake_nvml.build(tmp_path).stat().st_mtime_ns == made
    assert [path.name for path in tmp_path.iterdir()] == ["libnvidia-ml.so.1"]


def test_a_missing_compiler_is_said(tmp_path: Path) -> None:
    with pytest.raises(fake_nvml.FakeNvmlError, match="install gcc"):
        fake_nvml.build(tmp_path, compiler="no-such-compiler")
