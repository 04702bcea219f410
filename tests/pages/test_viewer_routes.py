"""The viewer's routes answer for the one run that its process shows, and tell of it what viewers may see."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from starlette.applications import Starlette

from pages.live.routes import files_folder
from pages.viewer_routes import UNREADABLE, viewer_routes
from tests.made_run import beat, holding_lock, job_status, make_run
from tests.pages.asgi_client import Answer, ask

Client = Callable[..., Answer]
ALLOWED = {"run", "at", "look", "supervisor", "life", "sentence", "trouble", "age", "share", "replicas"}


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A browser before the routes alone; the run "demo" is shown, "other" lies beside it."""
    make_run(tmp_path, "other")
    run = make_run(tmp_path)
    monkeypatch.setenv("HEADWAY_VIEW", str(run.root))
    beat(run, job_status(admission_stopped=f"{tmp_path} is full"), time.time())
    with holding_lock(run, time.time()):
        yield partial(ask, Starlette(routes=viewer_routes()))


def test_a_pulse_tells_state_and_sentence_and_no_more(client: Client, tmp_path: Path) -> None:
    answer = client("/api/pulse", {"run": "demo"})
    assert answer.status == 200
    assert answer.headers["cache-control"] == "no-store"
    told = answer.json()
    assert set(told) == ALLOWED
    assert told["look"] == {"sign": "▶", "word": "running", "tone": "active"}
    assert told["sentence"].startswith("Running alpha")
    assert told["trouble"] == "Nothing new is asked for at the moment; who operates the run can see why."
    assert told["replicas"] == []
    assert str(tmp_path) not in answer.text


@pytest.mark.parametrize("name", ["other", "", "..", "../runs/demo", "<b>", "demo\x00"])
def test_another_run_is_answered_like_one_that_does_not_exist(client: Client, name: str) -> None:
    answer = client("/api/pulse", {"run": name})
    assert (answer.status, answer.json()) == (404, {"error": "There is no run of this name."})


def test_the_operators_figures_are_not_served(client: Client) -> None:
    assert client("/api/live", {"run": "demo"}).status == 404


def test_what_live_parts_run_is_served(client: Client) -> None:
    assert client(f"/{files_folder()}card.js").status == 200


def test_a_broken_run_is_told_without_its_path(client: Client, tmp_path: Path) -> None:
    (tmp_path / "runs/demo/run.toml").write_text("name = ")
    answer = client("/api/pulse", {"run": "demo"})
    assert (answer.status, answer.json()) == (404, {"error": UNREADABLE})


def test_nothing_can_be_written_through_them(client: Client) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert client("/api/pulse", method=method).status == 405
