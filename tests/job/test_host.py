"""The machine's figures are there, plausible, and missing where they cannot be had."""

from __future__ import annotations

import time
from dataclasses import fields
from pathlib import Path

from backend.job.host import HostReader


def test_every_figure_is_known_and_plausible(tmp_path: Path) -> None:
    sample = HostReader(tmp_path).read(1000.0)
    assert (sample.key, sample.at) == ("host", 1000.0)
    assert all(getattr(sample, field.name) is not None for field in fields(sample))
    assert 0 < (sample.memory_used_bytes or 0) < (sample.memory_total_bytes or 0)
    assert 0 < (sample.disk_free_bytes or 0) <= (sample.disk_total_bytes or 0)
    assert 1e6 < (sample.supervisor_rss_bytes or 0) < 1e11
    assert 0 <= (sample.cpu_percent or 0) <= 100


def test_the_supervisors_share_is_that_of_this_process(tmp_path: Path) -> None:
    reader = HostReader(tmp_path)
    deadline = time.process_time() + 0.2
    while time.process_time() < deadline:
        pass
    assert (reader.read(0.0).supervisor_cpu_percent or 0) > 5
    time.sleep(0.3)
    assert (reader.read(0.3).supervisor_cpu_percent or 0) < 60


def test_a_disk_that_is_gone_is_missing(tmp_path: Path) -> None:
    sample = HostReader(tmp_path / "gone").read(0.0)
    assert (sample.disk_free_bytes, sample.disk_total_bytes) == (None, None)
    assert sample.memory_total_bytes is not None
