"""Every page that the frame lists, in every state a run can be in, shows something sensible and never an exception."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.run_dir import open_ledger, open_state
from tests.made_run import make_run
from tests.pages.shown import LISTED, elements, open_page, words
from tests.pages.states import STATES, run_in

# What must be read on a page in a state; "" in place of the state: in each but "no run".
EXPECTED: dict[str, dict[str, str]] = {
    "overview.py": {
        "": "alpha",
        "created": "Created and not started yet",
        "starting": "Starting",
        "running": "Running alpha",
        "paused": "Paused",
        "held": "Waiting for a decision: alpha is held",
        "failed": "its prompt file has changed",
        "finished": "Finished, 2 of 2 datasets done",
        "supervisor dead": "Interrupted",
    },
    "forecast.py": {
        "": "8 of 10 ranges should hold",
        "created": "the run has not been started.",
        "starting": "the first one comes within a minute of work.",
        "running": "Done ",
        "paused": "h of work once it runs",
        "failed": "What this assumes",
        "finished": "Finished today",
        "supervisor dead": "h of work once it runs",
    },
    "engine.py": {
        "": "A simulated engine",
        "created": "It starts with the run",
        "starting": "the model loads",
        "running": "Ready; 6 requests in flight",
        "paused": "Ready",
        "held": "Ready",
        "failed": "out of memory",
        "finished": "It is stopped, as the run has ended",
        "supervisor dead": "the supervisor is gone",
    },
    "gpus.py": {"": "No GPU is measured now"},
    "compare.py": {
        "created": "How long staying takes is not known yet",
        "running": "What no price shows",
        "paused": "counted as if resumed now",
        "failed": "Nothing waits to be made",
        "finished": "Nothing waits to be made",
        "supervisor dead": "What no price shows",
    },
    "datasets.py": {
        "": "alpha",
        "created": "No sample of this dataset is finished yet",
        "starting": "No sample of this dataset is finished yet",
        "running": "Length of the finished answers",
        "paused": "paused",
        "held": "The 3 worst samples",
        "failed": "its prompt file has changed",
        "finished": "Its token budget is reached.",
        "supervisor dead": "was running",
    },
    "data.py": {
        "": "finished, ",
        "created": "No sample is finished yet",
        "starting": "No sample is finished yet",
        "running": "Lengths by dataset",
        "paused": "Outcomes over time",
        "failed": "Do lengths drift?",
        "finished": "Lengths by dataset",
        "supervisor dead": "Lengths by dataset",
    },
    "events.py": {
        "created": "Nothing has happened yet",
        "starting": "Nothing has happened yet",
        "running": "requests are sent again",
        "failed": "CUDA out of memory",
        "finished": "Supervisor started (life 1, pid 1).",
        "supervisor dead": "requests are sent again",
    },
    "runs.py": {
        "": "1 run, ",
        "created": "not started",
        "starting": "starting",
        "running": "running",
        "paused": "paused",
        "held": "running",
        "failed": "failed",
        "finished": "finished",
        "supervisor dead": "interrupted",
    },
}


@pytest.mark.parametrize("page", LISTED)
def test_without_any_run_a_page_says_what_to_do_next(page: str, runs: Path) -> None:
    at = open_page(page)
    assert not at.exception
    assert "New run" in words(at) or page == "new_run.py"
    assert len(list(elements(at))) > 0


@pytest.mark.parametrize("state", sorted(STATES))
@pytest.mark.parametrize("page", LISTED)
def test_a_page_shows_a_run_in_every_state(page: str, state: str, runs: Path) -> None:
    with run_in(state, runs):
        at = open_page(page, run="demo")
        assert not at.exception, [e.message for e in at.exception]
        shown = words(at)
    for expected in {EXPECTED.get(page, {}).get(each, "") for each in ("", state)}:
        assert expected in shown
    assert "Traceback" not in shown
    assert "simulated<" in shown  # the frame says it on every page


@pytest.mark.parametrize("page", LISTED)
@pytest.mark.parametrize("damage", ["state", "ledger", "config", "empty databases"])
def test_a_page_tells_a_damaged_run_in_words(page: str, damage: str, runs: Path) -> None:
    with run_in("running", runs) as run:
        if damage == "empty databases":  # as in the moment in which a supervisor makes them
            for path in (run.state, run.ledger):
                path.unlink()
                path.touch()
        elif damage == "config":
            run.config.write_text("name = ")
        else:
            path = getattr(run, damage)
            for each in (path, path.with_name(f"{path.name}-wal")):
                each.write_bytes(b"no database" * 1000)
        at = open_page(page, run="demo")
        assert not at.exception, [e.message for e in at.exception]
        assert "Traceback" not in words(at)


@pytest.mark.parametrize("page", LISTED)
def test_a_run_that_no_longer_is_there_leads_to_another(page: str, runs: Path) -> None:
    make_run(runs)
    at = open_page(page, run="gone")
    assert not at.exception


def test_databases_without_rows_are_no_error(runs: Path) -> None:
    run = make_run(runs)
    open_state(run).close()
    open_ledger(run).close()
    for page in LISTED:
        assert not open_page(page, run="demo").exception


@pytest.mark.parametrize("page", [page for page in LISTED if page != "new_run.py"])
def test_a_folder_of_runs_that_cannot_be_read_is_named_on_every_page(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "runs"
    file.write_text("")
    monkeypatch.setenv("HEADWAY_RUNS", str(file))
    at = open_page(page)
    assert not at.exception
    assert f"{file} cannot be read as the folder of runs (Not a directory)." in words(at)
