"""Engine and GPUs: what is told of a run that is measured, and what is never shown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from backend import telemetry_store
from backend.records import EngineState, ReplicaStatus
from backend.run_dir import RunDir, open_state
from backend.telemetry import EngineSample, GpuSample, HostSample
from tests.made_run import beat, holding_lock, job_status, make_run
from tests.pages.shown import elements, open_page, words

KEY = "headway-" + "0123456789abcdef" * 3


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunDir]:
    """Two replicas, one of them failed; a supervisor that lives."""
    monkeypatch.setenv("HEADWAY_RUNS", str(tmp_path / "runs"))
    run, now = make_run(tmp_path), time.time()
    replicas = (
        ReplicaStatus(
            "0", EngineState.READY, pid=4321, url="http://127.0.0.1:9", since=now, command=("python", "--tp-size", "4")
        ),
        ReplicaStatus("1", EngineState.FAILED, reason="CUDA out of memory", restarts=8, since=now),
    )
    run.server_log("0").write_text(f"server_args=(api_key='{KEY}')\nThe server is fired up\nout of memory\n")
    with holding_lock(run, now):
        beat(run, job_status(replicas=replicas), at=now)
        yield run


def measure(run: RunDir, *, gpus: bool = True) -> None:
    """A minute of telemetry that ends now."""
    end = int(time.time())
    with closing(open_state(run)) as con:
        telemetry_store.create_tables(con)
        for at in range(end - 60, end + 1):
            samples = [
                EngineSample(key="0", at=at, running=5, decode_tokens_per_s=900),
                HostSample(key="host", at=at, cpu_percent=12),
            ]
            cards = [
                GpuSample(key=f"GPU-{i}", at=at, index=i, power_w=360, throttle_reasons="software power cap") for i in (0, 1)
            ]
            telemetry_store.write(con, [*samples, *(cards if gpus else [])])


def event(run: RunDir, kind: str, message: str) -> None:
    with closing(open_state(run)) as con:
        con.execute(
            "INSERT INTO events (at, kind, subject, severity, message, who, details) VALUES (?, ?, 'g', 'info', ?, 'x', '{}')",
            (time.time(), kind, message),
        )


def charts(page: str) -> int:
    return sum(kind == "plotly_chart" for kind, _ in elements(open_page(page, run="demo")))


def test_the_engine_is_told_in_a_sentence_with_its_replicas_and_its_command(run: RunDir) -> None:
    shown = words(open_page("engine.py", run="demo"))
    assert "Of 2 replicas 1 ready, 1 failed" in shown
    assert "CUDA out of memory" in shown
    assert "python --tp-size 4" in shown
    assert "Stop engine" in shown


def test_no_api_key_is_shown_of_a_log(run: RunDir) -> None:
    at = open_page("engine.py", run="demo")
    assert KEY not in words(at)
    assert "The server is fired up" in words(at)
    at.text_input("log_words").set_value("API_KEY").run()
    assert KEY not in words(at)
    assert "1 line of the 3 hold it" in words(at)


def test_a_search_shows_the_lines_that_hold_the_words(run: RunDir) -> None:
    at = open_page("engine.py", run="demo")
    at.text_input("log_words").set_value("OUT OF").run()
    assert "out of memory" in [c.value for c in at.code]


def test_measurements_are_drawn(run: RunDir) -> None:
    assert charts("engine.py") == 0
    measure(run)
    assert charts("engine.py") == 6
    assert charts("gpus.py") == 5 + 3


def test_the_gpus_are_told_with_what_slows_them_and_what_they_used(run: RunDir) -> None:
    measure(run)
    shown = words(open_page("gpus.py", run="demo"))
    assert "2 GPUs, drawing 720 W, 2 of them slowed down." in shown
    assert "software power cap" in shown
    assert "12.2 W·h used" in shown


def test_where_there_is_no_gpu_the_page_says_why_and_shows_the_machine(run: RunDir) -> None:
    measure(run, gpus=False)
    for _ in range(2):  # lives of the supervisor
        event(run, "gpu.unavailable", "GPUs are not measured: there is no NVIDIA driver.")
    shown = words(open_page("gpus.py", run="demo"))
    assert "No GPU is measured now." in shown
    assert shown.count("there is no NVIDIA driver") == 1
    assert charts("gpus.py") == 3


def test_a_window_is_chosen_and_kept_for_both_pages(run: RunDir) -> None:
    measure(run)
    at = open_page("engine.py", run="demo")
    at.selectbox("window").set_value("day").run()
    at.switch_page("gpus.py").run()
    assert at.selectbox("window").value == "day"


def test_the_engine_is_stopped_by_a_wish(run: RunDir) -> None:
    at = open_page("engine.py", run="demo")
    next(b for b in at.button if b.label == "Stop engine").click().run()
    with closing(open_state(run, read_only=True)) as con:
        rows = [tuple(row) for row in con.execute("SELECT subject, value FROM intents")]
    assert rows == [("engine", '{"want": "stopped"}')]
    assert "Asked to stop; not stopped yet" in words(at)
