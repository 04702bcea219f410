"""Reads what SGLang's own load generator (`python -m sglang.benchmark.serving --output-file`) measured as levels of a sweep.

It appends one JSON object a run to the file. Used are `max_concurrency`, `output_throughput` (tokens/s) and, where answers
were streamed, `median_ttft_ms`. Everything else is passed over.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from backend.control import ControlError
from backend.records import Json

LARGEST: Final = 1e15


def read_benchmark(path: Path, replicas: int) -> Json:
    """The value of an intent: levels ascending, measured against `replicas` replicas together. Of equal levels the last counts.

    Raises ControlError that names the file, the line and the field.
    """
    if not path.is_file():
        raise ControlError(f"{path}: there is no such file. Name what --output-file of sglang.benchmark.serving wrote.")
    levels: dict[int, Json] = {}
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    level = _level(f"{path}, line {number}", line)
                    levels[level["concurrency"]] = level
    except UnicodeDecodeError as error:
        raise ControlError(f"{path}: it is no UTF-8 text ({error.reason}). Name a JSONL file.") from None
    except OSError as error:
        raise ControlError(f"{path}: it cannot be read ({error.strerror}).") from None
    if not levels:
        raise ControlError(f"{path}: it is empty. Let sglang.benchmark.serving measure something first.")
    return {"measured": [levels[n] for n in sorted(levels)], "source": path.name, "replicas": replicas}


def _level(place: str, line: str) -> Json:
    try:
        result: Any = json.loads(line)
    except ValueError:
        raise ControlError(f"{place}: found no JSON but {_short(line)}. Each line must be an object.") from None
    if not isinstance(result, dict):
        raise ControlError(f"{place}: found {_short(line)}, must be an object with max_concurrency and output_throughput.")
    concurrency = result.get("max_concurrency")
    if not isinstance(concurrency, int) or isinstance(concurrency, bool) or concurrency < 1:
        raise ControlError(
            f"{place}, max_concurrency: found {_short(concurrency)}, must be a whole number of at least 1. Run the benchmark "
            f"with --max-concurrency."
        )
    speed = _number(result.get("output_throughput"))
    if speed is None or speed <= 0:
        raise ControlError(
            f"{place}, output_throughput: found {_short(result.get('output_throughput'))}, must be tokens a second above 0."
        )
    level: Json = {"concurrency": concurrency, "tokens_per_s": speed}
    first_ms, whole_ms = _number(result.get("median_ttft_ms")), _number(result.get("median_e2e_latency_ms"))
    # without streaming it writes 0, or the time of the whole answer
    if first_ms and (whole_ms is None or first_ms < 0.99 * whole_ms):
        level["first_token_s"] = first_ms / 1000
    return level


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST
    return float(value) if is_number else None


def _short(value: Any) -> str:
    text = value.strip() if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
