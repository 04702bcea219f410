"""`route` and `probe` write what is wanted, say what it may cost first, and refuse what is not there."""

from __future__ import annotations

import io
import json
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from backend.__main__ import main
from backend.records import DatasetState
from backend.run_dir import RunDir, open_state
from tests.made_comparison import APIS, SOLD, make_compared
from tests.made_run import beat, job_status, write_config

CAPPED = SOLD.replace("concurrency = 8", "concurrency = 8\nmax_new_tokens = 4000")
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """Not at work: what is wanted waits for the next start."""
    monkeypatch.setenv("HEADWAY_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return make_compared(tmp_path, CAPPED + APIS, begun=False)


def wishes(run: RunDir) -> list[tuple[str, object]]:
    with closing(open_state(run)) as con:
        return [
            (row["subject"], json.loads(row["value"])) for row in con.execute("SELECT subject, value FROM intents ORDER BY id")
        ]


def test_a_dataset_is_routed_to_an_api_to_both_and_back(run: RunDir) -> None:
    for to in ("fast", "both:fast", "local"):
        assert main(["route", "demo", "alpha", to]) == 0
    assert wishes(run) == [("dataset:alpha", {"to": to}) for to in ("fast", "both:fast", "local")]


def test_all_that_wait_and_all_that_are_left_are_routed_at_once(run: RunDir) -> None:
    said = job_status()
    ended = replace(said.datasets[0], state=DatasetState.DONE)
    beat(run, replace(said, datasets=(ended, said.datasets[1])), time.time())
    assert main(["route", "demo", "--waiting", "fast"]) == 0
    assert main(["route", "demo", "--all", "local"]) == 0
    assert wishes(run) == [("dataset:beta", {"to": "fast"}), ("dataset:beta", {"to": "local"})]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["route", "demo", "alpha", "fats"], "There is no API 'fats'. Did you mean"),
        (["route", "demo", "alhpa", "fast"], "no dataset 'alhpa'"),
        (["route", "demo", "fast"], "Name one dataset, or give --waiting or --all"),
        (["route", "demo", "--waiting", "alpha", "fast"], "Name one dataset, or give --waiting or --all"),
        (["probe", "demo", "nobody", "--cap-usd", "1", "--yes"], "There is no API 'nobody'"),
        (["probe", "demo", "fast", "--cap-usd", "1"], "give --yes to agree"),
        (["probe", "demo", "unpriced", "--cap-usd", "1", "--yes"], "Write input_usd_per_mtok and output_usd_per_mtok into"),
    ],
)
def test_what_is_not_there_is_refused(
    run: RunDir, arguments: list[str], words: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert main(arguments) == 1
    assert words in capsys.readouterr().err
    assert wishes(run) == []


def test_a_probe_says_its_worst_price_before_it_is_wished(run: RunDir, capsys: Capture) -> None:
    assert main(["probe", "demo", "fast", "--prompts", "16", "--cap-usd", "0.5", "--yes"]) == 0
    assert "16 prompts to fast (qwen3-8b): at most $0.092 by the prices (run.toml)" in capsys.readouterr().out
    assert wishes(run) == [("run", {"api": "fast", "prompts": 16, "cap_usd": 0.5})]


def test_a_cap_that_was_set_while_the_run_goes_on_bounds_a_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("HEADWAY_RUNS", str(tmp_path / "runs"))
    run = make_compared(tmp_path, SOLD + APIS, begun=False)
    assert main(["probe", "demo", "fast", "--cap-usd", "1", "--yes"]) == 1
    assert "Set it: python -m backend set demo alpha.max_new_tokens=8192" in capsys.readouterr().err
    said = job_status()
    capped = replace(said, datasets=tuple(replace(d, max_new_tokens=4000) for d in said.datasets))
    beat(run, capped, time.time())
    assert main(["probe", "demo", "fast", "--cap-usd", "1", "--yes"]) == 0
    assert "its cap of 4.00k tokens" in capsys.readouterr().out


def test_a_route_to_an_api_that_would_get_nothing_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("HEADWAY_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    make_compared(tmp_path, SOLD + APIS, begun=False)
    assert main(["route", "demo", "--waiting", "fast"]) == 0
    assert "no cap on new tokens" not in capsys.readouterr().out  # nor has the API a spend cap
    text = (SOLD + APIS).replace("output_usd_per_mtok", "spend_cap_usd = 5\noutput_usd_per_mtok")
    config = write_config(tmp_path, "other", text)
    capsys.readouterr()
    assert main(["create", str(config)]) == 0
    assert "Mind: alpha, beta have no cap on new tokens" in capsys.readouterr().out
    assert main(["route", "other", "beta", "both:fast"]) == 0
    assert "Mind: beta has no cap on new tokens" in capsys.readouterr().out
    assert main(["route", "other", "beta", "local"]) == 0
    assert "Mind:" not in capsys.readouterr().out


def test_the_cap_is_set_while_the_run_goes_on(run: RunDir, capsys: Capture) -> None:
    assert main(["set", "demo", "api.fast.spend_cap_usd=12.50"]) == 0
    assert "api.fast.spend_cap_usd: none → 12.5" in capsys.readouterr().out
    assert main(["set", "demo", "api.fast.spend_cap_usd=lots"]) == 1
    assert "must be an amount in USD" in capsys.readouterr().err
    assert wishes(run) == [("run", {"key": "api.fast.spend_cap_usd", "value": 12.5})]
