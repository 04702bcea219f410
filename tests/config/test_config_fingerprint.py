"""The fingerprint changes with what shapes the data and with nothing else."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from backend.config import PromptFile, RunConfig, fingerprint

BASE: dict[str, Any] = {
    "name": "x",
    "model": {"path": "m"},
    "engine": {"kind": "local", "args": ["--mem-fraction-static", "0.8", "--quantization", "fp8"]},
    "generation": {"concurrency": 8, "temperature": 0.5},
    "datasets": [{"name": "a", "path": "a.jsonl", "token_budget": 5}, {"name": "b", "path": "b.jsonl"}],
}


def of(data: dict[str, Any], **hashes: str) -> str:
    files = {name: [PromptFile(path=f"/{name}.jsonl", bytes=1, sha256=hashes.get(name, "0"), records=1)] for name in ("a", "b")}
    return fingerprint(RunConfig.model_validate(data), files)


def changed(path: str, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(BASE)
    *parents, last = path.split(".")
    here: Any = data
    for key in parents:
        here = here[int(key)] if key.isdigit() else here.setdefault(key, {})
    here[last] = value
    return data


def test_it_stays_the_same_from_version_to_version() -> None:
    assert of(BASE) == "286d1168894624852f9023f2dbb314f354d4cfd0f8a7f3e1b0030c1626428216"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("name", "y"),
        ("engine.port", 30000),
        ("engine.kind", "simulated"),
        ("engine.args", ["--quantization=fp8", "--mem-fraction-static", "0.9"]),
        ("generation.concurrency", 99),
        ("datasets.0.token_budget", 7),
        ("datasets.0.max_samples", 7),
        ("datasets.0.at_budget", "cancel"),
        ("datasets.0.path", "elsewhere/a.jsonl"),
        ("datasets.0.generation", {"temperature": 0.5}),
        ("telemetry.gpu", False),
    ],
)
def test_what_does_not_shape_the_data_has_no_part_in_it(path: str, value: Any) -> None:
    assert of(changed(path, value)) == of(BASE)


def test_the_order_of_datasets_has_no_part_in_it() -> None:
    assert of(changed("datasets", BASE["datasets"][::-1])) == of(BASE)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("model.path", "m2"),
        ("engine.args", ["--quantization", "awq"]),
        ("generation.temperature", 0.6),
        ("generation.extra_body", {"min_p": 0.1}),
        ("datasets.0.generation", {"temperature": 0.6}),
        ("datasets.0.system_prompt", "s"),
        ("datasets.0.prompt_field", "q"),
        ("datasets.0.id_field", "q"),
        ("datasets.0.turns", "all"),
        ("datasets.0.name", "b2"),
    ],
)
def test_what_shapes_the_data_changes_it(path: str, value: Any) -> None:
    data = changed(path, value)
    names = [dataset["name"] for dataset in data["datasets"]]
    files = {name: [PromptFile(path="/f", bytes=1, sha256="0", records=1)] for name in names}
    assert fingerprint(RunConfig.model_validate(data), files) != of(BASE)


def test_the_content_of_a_prompt_file_changes_it() -> None:
    assert of(BASE, a="1") != of(BASE)
    assert of(BASE, a="1") != of(BASE, b="1")
