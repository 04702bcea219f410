"""`share` writes three files and names them, from whatever a run left; what it cannot do it says in words."""

from __future__ import annotations

import json
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from backend.__main__ import main
from backend.commands import share
from tests.pages.states import run_in

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADWAY_RUNS", str(tmp_path / "runs"))
    return tmp_path


@pytest.mark.parametrize("state", ["supervisor dead", "finished", "created"])
def test_it_works_without_a_supervisor(state: str, folder: Path, capsys: Capture) -> None:
    with run_in(state, folder):
        assert main(["share", "demo", "--to", str(folder / "web"), "--zone", "Asia/Tokyo", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [Path(told[form]).name for form in ("page", "picture", "paragraph")] == ["demo.html", "demo.png", "demo.txt"]
    assert Path(told["page"]).read_text().startswith("<!doctype html>")
    assert Path(told["picture"]).read_bytes().startswith(b"\x89PNG")
    assert Path(told["paragraph"]).read_text().strip() == told["words"]
    assert " JST (" in told["words"]


def test_without_a_folder_it_writes_into_the_run(folder: Path, capsys: Capture) -> None:
    with run_in("running", folder) as run:
        assert main(["share", "demo"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[:3] == [str(run.shared / f"demo.{end}") for end in ("html", "png", "txt")]
    assert lines[3].startswith("demo: Done ")


def test_what_cannot_be_done_is_said_in_words(folder: Path, capsys: Capture) -> None:
    with run_in("running", folder) as run:
        (folder / "file").write_text("")
        for arguments, words in (
            (["--zone", "Mars/Olympus"], "There is no time zone 'Mars/Olympus'. Give one as Europe/Berlin or UTC."),
            (["--to", str(folder / "file")], f"{folder / 'file'}: File exists."),
            (["--to", str(folder / "file/below")], f"{folder / 'file/below'}: Not a directory."),
        ):
            assert main(["share", "demo", *arguments]) == 1
            assert capsys.readouterr().err.strip() == words
        run.config.write_text("name = ")
        assert main(["share", "demo"]) == 1
        assert str(run.config) in capsys.readouterr().err
    assert not run.shared.exists()


def test_the_zone_is_the_one_that_is_asked_for_else_the_environments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TZ", ":Asia/Tokyo")
    assert share.zone_of("Europe/Berlin") == ZoneInfo("Europe/Berlin")
    assert share.zone_of(None) == ZoneInfo("Asia/Tokyo")
    monkeypatch.delenv("TZ")
    monkeypatch.setattr(share, "MACHINE_ZONE", tmp_path / "none")
    assert str(share.zone_of(None)) == "UTC"
