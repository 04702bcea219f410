"""`view` serves one run, says what it is where others can reach it, and refuses what is no run."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.__main__ import main
from backend.commands import serving, view
from backend.run_dir import RunDir
from tests.made_run import make_run

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.setenv("HEADWAY_RUNS", str(tmp_path / "runs"))
    return make_run(tmp_path)


def test_an_unknown_run_is_refused_with_the_nearest_name(run: RunDir, capsys: Capture) -> None:
    assert main(["view", "demmo"]) == 1
    assert "Did you mean demo?" in capsys.readouterr().err


def test_the_process_is_told_the_run_alone(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(view, "serve", lambda *given: seen.extend(given) or 0)
    assert main(["view", str(run.root), "--port", "8700"]) == 0
    assert seen == [view.VIEWER, "127.0.0.1", 8700, {"HEADWAY_VIEW": str(run.root)}]


def test_who_lets_others_in_is_told_what_they_can_do(run: RunDir, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(serving, "command", lambda *_: ["false"])
    monkeypatch.setattr(serving.signal, "signal", lambda *_: None)
    assert main(["view", "demo", "--host", "0.0.0.0", "--port", "18700"]) == 1
    said = capsys.readouterr().err
    assert "Whoever reaches 0.0.0.0 can look at this run and press nothing; there is no login here." in said
    assert "Headway's viewer did not start" in said
