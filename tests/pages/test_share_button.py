"""Share offers three files and a paragraph to copy, writes them into the run, and says why where it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from backend.run_dir import RunDir
from tests.pages.hostile import make_hostile_run
from tests.pages.shown import elements, words
from tests.pages.states import STATES, run_in
from tests.pages.test_hostile import check


def page_with_the_button(root: str) -> None:
    """What AppTest runs: nothing but the button."""
    from pathlib import Path

    from backend.run_dir import RunDir
    from pages.share_button import share_button

    share_button(RunDir(Path(root)))


def press_share(run: RunDir) -> AppTest:
    at = AppTest.from_function(page_with_the_button, args=(str(run.root),), default_timeout=30).run()
    return at.button("share").click().run()


def downloads(at: AppTest) -> list[Any]:
    return [message for kind, message in elements(at) if kind == "download_button"]


@pytest.mark.parametrize("state", sorted(STATES))
def test_each_state_can_be_shared(state: str, tmp_path: Path) -> None:
    with run_in(state, tmp_path) as run:
        at = press_share(run)
    assert not at.exception, [e.message for e in at.exception]
    assert [button.label for button in downloads(at)] == ["Page", "Picture", "Paragraph"]
    assert sorted(path.name for path in run.shared.iterdir()) == ["demo.html", "demo.png", "demo.txt"]
    assert at.code[0].value == (run.shared / "demo.txt").read_text().strip()
    assert f"Written into {run.shared} as well" in words(at)


def test_nothing_is_written_before_the_press(tmp_path: Path) -> None:
    with run_in("running", tmp_path) as run:
        at = AppTest.from_function(page_with_the_button, args=(str(run.root),), default_timeout=30).run()
    assert downloads(at) == []
    assert not run.shared.exists()


def test_where_nothing_can_be_written_downloads_are_offered_all_the_same(tmp_path: Path) -> None:
    with run_in("running", tmp_path) as run:
        run.shared.write_text("a file in the folder's place")
        at = press_share(run)
    assert f"They could not be written into {run.shared} (File exists)" in words(at)
    assert len(downloads(at)) == 3


def test_a_damaged_run_is_told_in_words(tmp_path: Path) -> None:
    with run_in("running", tmp_path) as run:
        run.config.write_text("name = ")
        at = press_share(run)
    assert not at.exception
    assert str(run.config) in words(at)
    assert downloads(at) == []


def test_a_hostile_runs_words_stay_text(tmp_path: Path) -> None:
    check(press_share(make_hostile_run(tmp_path)))
