"""`python -m backend.forecast < observations.jsonl`: a forecast a line, for the observation in each line."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from backend.forecast.calibrate import Range
from backend.forecast.forecast import forecast
from backend.forecast.from_json import ObservationError, observation_from_json


def main() -> int:
    """Exit code 1 where a line could not be answered; the others are."""
    parser = argparse.ArgumentParser(
        prog="python -m backend.forecast",
        description="Reads lines {key, observation} on stdin, writes lines {key, p10_s, p50_s, p90_s, ...} on stdout.",
    )
    parser.parse_args()
    failed = False
    for number, line in enumerate(sys.stdin, start=1):
        if not line.strip():
            continue
        answer = answer_line(line)
        if "error" in answer:
            failed = True
            print(f"line {number}: {answer['error']}", file=sys.stderr)
        print(json.dumps(answer), flush=True)
    return 1 if failed else 0


def answer_line(line: str) -> dict[str, Any]:
    """What is written for a line; with `error` where it cannot be answered."""
    nothing = {"p10_s": None, "p50_s": None, "p90_s": None}
    try:
        asked = json.loads(line)
    except ValueError as error:
        return {"key": None, **nothing, "error": f"not JSON: {error}"}
    if not isinstance(asked, dict):
        return {"key": None, **nothing, "error": "must be an object with key and observation"}
    key = asked.get("key")
    if "observation" not in asked:
        return {"key": key, **nothing, "error": "observation: is missing"}
    try:
        observation = observation_from_json(asked["observation"])
    except ObservationError as error:
        return {"key": key, **nothing, "error": str(error)}
    found = forecast(observation)
    return {
        "key": key,
        **_seconds(found.remaining),
        "why_none": found.why_none,
        "remaining_tokens": _listed(found.remaining_tokens),
        "datasets": [
            {
                "name": dataset.name,
                **_seconds(dataset.ends_in),
                "budget_binds": dataset.budget_binds,
                "mean_tokens": _listed(dataset.mean_tokens),
                "naive_mean_tokens": dataset.naive_mean_tokens,
            }
            for dataset in found.datasets
        ],
    }


def _seconds(found: Range | None) -> dict[str, float | None]:
    if found is None:
        return {"p10_s": None, "p50_s": None, "p90_s": None}
    return {"p10_s": round(found.p10, 1), "p50_s": round(found.p50, 1), "p90_s": round(found.p90, 1)}


def _listed(found: Range | None) -> list[float] | None:
    return [round(value, 1) for value in (found.p10, found.p50, found.p90)] if found else None


if __name__ == "__main__":
    sys.exit(main())
