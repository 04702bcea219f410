"""Observations in JSON: what is read, and which field cannot be; the command that answers them."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from typing import Any

import pytest

from backend.forecast.forecast import forecast
from backend.forecast.from_json import ObservationError, observation_from_json
from backend.forecast.observation import BudgetStop
from tests.forecast.made_observation import lengths

GOOD: dict[str, Any] = {
    "active_s": 600.0,
    "concurrency": 8,
    "at_budget": "drain",
    "speed_curve": [[1, 60.0], [8, 370.0]],
    "bin_s": 10.0,
    "tokens_per_s": [370.0] * 60,
    "running": [8.0] * 60,
    "datasets": [
        {
            "name": "B1",
            "state": "running",
            "prompts": 2000,
            "token_budget": 500_000,
            "max_new_tokens": 4096,
            "started": 408,
            "finished_lengths": [int(x) for x in lengths(400)],
            "in_flight_tokens": [10.0, 200.5] * 4,
        },
        {
            "name": "B2",
            "state": "waiting",
            "prompts": 100,
            "token_budget": None,
            "max_new_tokens": None,
            "started": 0,
            "finished_lengths": [],
            "in_flight_tokens": [],
        },
    ],
}


def with_change(path: str, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(GOOD)
    target: Any = changed
    *parents, last = path.split("/")
    for key in parents:
        target = target[int(key) if key.isdigit() else key]
    if value is ...:
        del target[last]
    else:
        target[int(last) if last.isdigit() else last] = value
    return changed


def answers(*lines: str) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    command = [sys.executable, "-m", "backend.forecast"]
    ended = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=60, check=False)
    return ended, [json.loads(line) for line in ended.stdout.splitlines()]


def test_an_observation_is_read_into_counts() -> None:
    seen = observation_from_json(GOOD)
    first = seen.datasets[0]
    assert (first.finished_samples, first.in_flight.total, first.in_flight.total_tokens) == (400, 8, 842)
    assert first.finished_tokens == sum(GOOD["datasets"][0]["finished_lengths"])
    assert (seen.budget_stop, seen.overlap, seen.concurrency) == (BudgetStop.DRAIN, False, 8)
    assert forecast(seen).remaining is not None


def test_unknown_fields_are_ignored() -> None:
    assert forecast(observation_from_json(GOOD | {"colour": "blue"})) == forecast(observation_from_json(GOOD))


def test_tokens_made_so_far_may_be_reckoned_a_little_above_the_cap() -> None:
    first = observation_from_json(with_change("datasets/0/in_flight_tokens/1", 4099.1)).datasets[0]
    assert first.in_flight.tokens.max() <= 4 * 4096
    assert first.in_flight.total == 8


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("active_s", -1, "active_s: must be a number of at least 0, not -1"),
        ("active_s", float("nan"), "active_s: must be a number"),
        ("active_s", True, "active_s: must be a number"),
        ("active_s", ..., "active_s: is missing"),
        ("concurrency", 0, "concurrency: must be a whole number of at least 1, not 0"),
        ("concurrency", 1.5, "concurrency: must be a whole number"),
        ("at_budget", "explode", "at_budget: must be one of drain, cancel, reserve"),
        ("at_budget", ["drain"], "at_budget: must be one of"),
        ("bin_s", 0, "bin_s: must be a number above 0, not 0"),
        ("running", [1.0], "running: has 1 bins, but tokens_per_s has 60"),
        ("tokens_per_s/3", -5, "tokens_per_s[3]: must be a number of at least 0, not -5"),
        ("tokens_per_s/3", "fast", "tokens_per_s[3]: must be a number"),
        ("active_s", 10, "tokens_per_s: 60 bins of 10 s are more than active_s (10)"),
        ("speed_curve", "steep", "speed_curve: must be a list"),
        ("speed_curve", [[1, 2, 3]], "speed_curve[0]: must be [requests, tokens/s]"),
        ("speed_curve", [[0, 0]], "speed_curve: has no level"),
        ("overlap", "yes", "overlap: must be true or false"),
        ("datasets", {}, "datasets: must be a list"),
        ("datasets/0", 7, "datasets[0]: must be an object"),
        ("datasets/1/name", "B1", "datasets[1].name: 'B1' is there twice"),
        ("datasets/0/state", "sleeping", "datasets[0].state: must be one of waiting, running"),
        ("datasets/0/state", ..., "datasets[0].state: is missing"),
        ("datasets/0/prompts", -1, "datasets[0].prompts: must be a whole number of at least 0"),
        ("datasets/0/prompts", 300, "datasets[0].finished_lengths: 400 samples are more than prompts (300)"),
        ("datasets/0/token_budget", -1, "datasets[0].token_budget: must be"),
        ("datasets/0/max_new_tokens", 0, "datasets[0].max_new_tokens: must be"),
        ("datasets/0/finished_lengths/5", 9000, "datasets[0].finished_lengths[5]: 9000 tokens are more than max_new_tokens"),
        ("datasets/0/in_flight_tokens/1", 9000, "datasets[0].in_flight_tokens[1]: 9000 tokens are more than max_new_tokens"),
        ("datasets/0/in_flight_tokens/1", -0.5, "datasets[0].in_flight_tokens[1]: must be a number of at least 0"),
        ("datasets/0/started", 407, "datasets[0].started: 407 prompts are fewer than are finished (400) and in flight (8)"),
        ("datasets/0/started", 2001, "datasets[0].started: 2001 prompts are more than prompts (2000)"),
    ],
)
def test_what_cannot_be_is_named_by_its_field(path: str, value: Any, message: str) -> None:
    with pytest.raises(ObservationError) as error:
        observation_from_json(with_change(path, value))
    assert message in str(error.value)


def test_the_command_answers_a_line_with_a_line_and_says_what_is_wrong_with_the_others() -> None:
    bad = {"key": "b", "observation": with_change("datasets/0/prompts", 300)}
    ended, lines = answers(
        json.dumps({"key": "a", "observation": GOOD, "truth": 1}), json.dumps(bad), "", "{", '{"key": "d"}', "[]"
    )
    assert ended.returncode == 1
    first = lines[0]
    assert first["key"] == "a"
    assert 0 < first["p10_s"] < first["p50_s"] < first["p90_s"]
    assert [each["name"] for each in first["datasets"]] == ["B1", "B2"]
    assert [line["p50_s"] for line in lines[1:]] == [None] * 4
    errors = ended.stderr.splitlines()
    assert errors[0] == "line 2: datasets[0].finished_lengths: 400 samples are more than prompts (300)"
    assert errors[1].startswith("line 4: not JSON")
    assert errors[2] == "line 5: observation: is missing"
    assert errors[3].startswith("line 6: must be an object")
    assert "Traceback" not in ended.stderr


def test_the_command_answers_null_where_nothing_can_be_said_yet() -> None:
    silent = {**GOOD, "tokens_per_s": [], "running": [], "speed_curve": None}
    ended, lines = answers(json.dumps({"key": 1, "observation": silent}))
    assert ended.returncode == 0
    assert (lines[0]["p10_s"], lines[0]["p50_s"], lines[0]["p90_s"]) == (None, None, None)
    assert "no speed" in lines[0]["why_none"]
