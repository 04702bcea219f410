"""The routes of live views answer a run by its exact name, refuse what makes no sense in words, and let files be kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import streamlit as st
from starlette.applications import Starlette

from backend.run_dir import RunDir
from pages.live.routes import files_folder, live_routes
from tests.made_forecast import two_datasets, write_forecast
from tests.made_run import beat, holding_lock, job_status, make_run
from tests.pages.asgi_client import Answer, ask

Client = Callable[..., Answer]


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A browser before the routes alone; the run "demo" is at work."""
    monkeypatch.setenv("HEADWAY_RUNS", str(tmp_path / "runs"))
    run = make_run(tmp_path)
    beat(run, job_status(), time.time())
    with holding_lock(run, time.time()):
        yield partial(ask, Starlette(routes=live_routes()))


def test_a_pulse_tells_state_and_sentence(client: Client) -> None:
    answer = client("/api/pulse", {"run": "demo"})
    assert answer.status == 200
    assert answer.headers["cache-control"] == "no-store"
    told = answer.json()
    assert told["look"] == {"sign": "▶", "word": "running", "tone": "active"}
    assert told["sentence"].startswith("Running alpha")
    assert told["trouble"] is None


def test_live_tells_figures_also_where_nothing_was_measured(client: Client) -> None:
    told = client("/api/live", {"run": "demo", "since": "0", "window": "3h"}).json()
    assert [f["key"] for f in told["figures"]] == ["speed", "requests", "mean", "in_flight", "tokens", "samples"]
    assert told["charts"] is None


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "UTC", "", "Nowhere/Else", "../../../etc/passwd", "<b>", "x" * 5000, "\x00"])
def test_the_end_is_told_in_the_viewers_zone_and_in_utc_where_it_is_none(client: Client, tmp_path: Path, zone: str) -> None:
    run = RunDir(tmp_path / "runs" / "demo")
    said = write_forecast(run, two_datasets(), time.time())
    assert said.forecast.remaining is not None
    at = said.at + said.forecast.remaining.p50
    words, behind = client("/api/live", {"run": "demo", "zone": zone}).json()["end"]
    assert words.startswith("Done ")
    known = ZoneInfo("Asia/Tokyo" if zone == "Asia/Tokyo" else "UTC")
    assert f"{datetime.fromtimestamp(at, known):%H}:" in behind or f"{datetime.fromtimestamp(at + 150, known):%H}:" in behind


def test_no_end_is_told_before_there_is_a_forecast(client: Client) -> None:
    assert client("/api/live", {"run": "demo"}).json()["end"] is None


@pytest.mark.parametrize("route", ["/api/live", "/api/pulse"])
@pytest.mark.parametrize("name", ["", "other", "..", "../runs/demo", "demo/../demo", "%2e%2e", "/etc", "demo\x00", "<b>"])
def test_a_run_that_is_not_there_is_refused_without_repeating_its_name(client: Client, route: str, name: str) -> None:
    answer = client(route, {"run": name})
    assert answer.status == 404
    assert answer.json() == {"error": "There is no run of this name."}
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("since", ["-1", "x", "1e9", "1.5", "٣", "9" * 14, "9" * 13, ""])
def test_a_since_that_no_answer_ever_had_is_refused(client: Client, since: str) -> None:
    assert client("/api/live", {"run": "demo", "since": since}).status == 400


def test_an_unknown_window_is_refused_with_those_there_are(client: Client) -> None:
    answer = client("/api/live", {"run": "demo", "window": "1y"})
    assert (answer.status, answer.json()["error"]) == (400, "window is one of 15m, 3h, all.")


def test_a_broken_run_is_told_in_words(client: Client, tmp_path: Path) -> None:
    (tmp_path / "runs/demo/run.toml").write_text("name = ")
    answer = client("/api/pulse", {"run": "demo"})
    assert answer.status == 404
    assert "cannot be read" in answer.json()["error"]


@pytest.mark.parametrize("name", ["head.js", "poll.js", "plotly.min.js", "style.css"])
def test_files_may_be_kept_for_ever(client: Client, name: str) -> None:
    answer = client(f"/{files_folder()}{name}")
    assert answer.status == 200
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-encoding"] == "gzip"
    assert len(answer.text) > 500


@pytest.mark.parametrize(
    "path", ["routes.py", "../routes.py", "%2e%2e%2froutes.py", "..%2f..%2fapp.py", "component.py", "none.js"]
)
def test_nothing_else_of_the_folder_is_served(client: Client, path: str) -> None:
    assert client(f"/{files_folder()}{path}").status == 404


def test_files_of_another_version_are_not_confused(client: Client) -> None:
    assert client("/live-files/0123456789abcdef/head.js").status == 404


def test_nothing_can_be_written_through_them(client: Client) -> None:
    for route in ("/api/live", "/api/pulse", f"/{files_folder()}head.js"):
        assert client(route, method="POST").status == 405


def test_a_path_prefix_of_the_server_holds_for_them_as_well(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(st, "get_option", {"server.baseUrlPath": "hub/user/x"}.get)
    below = Starlette(routes=live_routes())
    for path in ("/hub/user/x/api/pulse", "/api/pulse"):  # a proxy may cut the prefix off, or not
        assert ask(below, path, {"run": "demo"}).status == 200
