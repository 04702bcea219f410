"""Files of SGLang's load generator: what is taken from them, and what is wrong with others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backend.control import ControlError
from backend.control.serving_benchmark import read_benchmark
from backend.job.sweep_order import read_imported


def result(**changes: Any) -> dict[str, Any]:
    """A line as SGLang 0.5.23 writes it, the fields that nobody reads here left out."""
    told = {
        "tag": None, "backend": "sglang-oai-chat", "dataset_name": "random-ids", "request_rate": "inf", "max_concurrency": 16,
        "server_info": {"model_path": "m"}, "duration": 12.5, "completed": 192, "total_output_tokens": 24576,
        "output_throughput": 1958.2, "median_e2e_latency_ms": 1010.0, "mean_ttft_ms": 41.0, "median_ttft_ms": 38.0,
    }  # fmt: skip
    return told | changes


def write(path: Path, *results: Any) -> Path:
    path.write_text("".join(f"{json.dumps(one)}\n" for one in results))
    return path


def test_each_line_is_a_level_and_the_last_of_equal_ones_counts(tmp_path: Path) -> None:
    path = write(
        tmp_path / "bench.jsonl",
        result(),
        result(max_concurrency=1, output_throughput=170.5),
        result(output_throughput=2000.0),
    )
    value = read_benchmark(path, 2)

    assert (value["source"], value["replicas"]) == ("bench.jsonl", 2)
    assert [(one["concurrency"], one["tokens_per_s"]) for one in value["measured"]] == [(1, 170.5), (16, 2000.0)]
    assert value["measured"][1]["first_token_s"] == pytest.approx(0.038)
    assert [level.concurrency for level in read_imported(value).levels] == [1, 16]


@pytest.mark.parametrize("told", [{"median_ttft_ms": 0.0}, {"median_ttft_ms": 1010.0}, {"median_ttft_ms": None}])
def test_without_streaming_no_time_to_the_first_token_is_known(tmp_path: Path, told: dict[str, Any]) -> None:
    value = read_benchmark(write(tmp_path / "bench.jsonl", result(**told)), 1)
    assert "first_token_s" not in value["measured"][0]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2: found no JSON but {. Each line must be an object."),
        ("[1]", "line 2: found [1], must be an object with max_concurrency and output_throughput."),
        (json.dumps(result(max_concurrency=None)), "line 2, max_concurrency: found null, must be a whole number"),
        (json.dumps(result(max_concurrency="16")), "line 2, max_concurrency: found 16, must be a whole number"),
        (json.dumps(result(output_throughput=0)), "line 2, output_throughput: found 0, must be tokens a second above 0."),
        (json.dumps(result(output_throughput=float("nan"))), "line 2, output_throughput: found NaN"),
        ("{}", "line 2, max_concurrency: found null"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_field(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "bench.jsonl"
    path.write_text(json.dumps(result()) + "\n" + line + "\n")
    with pytest.raises(ControlError) as refusal:
        read_benchmark(path, 1)
    assert str(refusal.value).startswith(str(path))
    assert words in str(refusal.value)


def test_a_file_that_is_missing_empty_or_no_text_is_told(tmp_path: Path) -> None:
    empty, binary = tmp_path / "empty.jsonl", tmp_path / "binary.jsonl"
    empty.write_text("\n")
    binary.write_bytes(b"\xff\xfe\x00")
    for path, words in ((tmp_path / "no", "there is no such file"), (empty, "it is empty"), (binary, "it is no UTF-8 text")):
        with pytest.raises(ControlError, match=words):
            read_benchmark(path, 1)
