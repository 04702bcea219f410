from __future__ import annotations

from typing import Any

import pytest

from backend.report.gpus import (
    FIELDS,
    GIB,
    HOST_FIELDS,
    energy_words,
    gpu_figures,
    gpu_name,
    gpu_rows,
    gpus_sentence,
    host_figures,
    throttle_sentence,
)
from backend.telemetry_store import Series


def series(fields: tuple[str, ...], **values: float) -> Series:
    return Series(1, (10, 11), {name: (None, values.get(name)) for name in fields})


def sample(index: float, **values: Any) -> dict[str, Any]:
    return {"index": index, "power_w": 400.0, "utilization_percent": 90.0, "throttle_reasons": "", **values}


def test_gpus_stand_in_the_order_in_which_nvidia_smi_counts() -> None:
    rows = gpu_rows({"GPU-a": sample(10), "GPU-b": sample(2), "MIG-parent-slice1": sample(2)})
    assert [row.name for row in rows] == ["GPU 2", "GPU 2 · slice1", "GPU 10"]


def test_what_a_device_does_not_tell_is_unknown_and_not_zero() -> None:
    row = gpu_rows({"GPU-a": {"index": 0.0}})[0]
    assert (row.power_w, row.memory_used_gib, row.ecc_errors, row.throttling) == (None, None, None, "–")


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        (None, "–"), ("", "no"), ("idle", "no"), ("idle,software power cap", "software power cap"),
        ("hardware thermal slowdown,software power cap", "hardware thermal slowdown, software power cap"),
    ],
)  # fmt: skip
def test_only_what_slows_a_gpu_is_told(reasons: str | None, words: str) -> None:
    assert throttle_sentence(reasons) == words


def test_the_sentence_says_how_many_and_how_hard_they_work() -> None:
    rows = gpu_rows({"a": sample(0), "b": sample(1, throttle_reasons="software power cap")})
    assert gpus_sentence(rows) == "2 GPUs, 90 % busy, drawing 800 W, 1 of them slowed down."
    assert gpus_sentence(gpu_rows({"a": {"index": 0.0}})) == "1 GPU."
    assert gpus_sentence([]) == "No GPU is measured now."


def test_each_measure_has_a_panel_a_gpu() -> None:
    lines = {key: series(FIELDS, index=i, power_w=300, power_limit_w=700) for i, key in enumerate(("GPU-a", "GPU-b"))}
    figures = gpu_figures(lines, since=0, until=20)
    assert [figure.layout.title.text for figure in figures] == ["Utilisation", "Memory", "Power", "Temperature", "Clock"]
    power = " ".join(a.text for a in figures[2].layout.annotations)
    assert power == "GPU 0 300 W GPU 1 300 W"
    assert "–" in " ".join(a.text for a in figures[3].layout.annotations)
    assert figures[2].layout.yaxis.range[1] > 700


def test_without_gpus_there_is_no_chart() -> None:
    assert gpu_figures({}, since=0, until=20) == []
    assert host_figures({}, since=0, until=20) == []


def test_the_host_is_drawn_in_units_of_people() -> None:
    host = series(HOST_FIELDS, cpu_percent=50, memory_used_bytes=8 * GIB, memory_total_bytes=16 * GIB)
    figures = host_figures({"host": host}, since=0, until=20)
    assert [list(figure.data[0].y) for figure in figures] == [[None, 50], [None, 8], [None, None]]
    assert "of 16 GiB" in figures[1].layout.title.subtitle.text


def test_energy_is_told_with_what_it_made() -> None:
    assert energy_words(None, 5) == "The energy is not known: no GPU tells its power."
    assert energy_words(5.0, 0) == "5.0 W·h used by the GPUs since the run's start."
    assert energy_words(1500.0, 3_000_000).startswith("1.50 kWh used")
    assert "500 W·h per million" in energy_words(1500.0, 3_000_000)


def test_a_gpu_without_a_number_is_known_by_its_uuid() -> None:
    assert gpu_name("GPU-0123456789abcdef", None) == "GPU-01234567"
