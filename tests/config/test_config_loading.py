"""A run.toml is loaded with every fault named at once, and saved so that it comes back as it was."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from backend.config import ConfigError, DatasetConfig, EngineKind, RunConfig, Turns, load, save

GOOD = """
name = "nightly"
[model]
path = "/models/x"
[engine]
kind = "local"
python = "/opt/sglang/bin/python"
gpus = [0, "GPU-1234"]
args = ["--mem-fraction-static", "0.85", "--reasoning-parser", "qwen3"]
env = { NCCL_DEBUG = "WARN" }
env_from = ["HF_TOKEN"]
[generation]
concurrency = 150
temperature = 1
chat_template_kwargs = { enable_thinking = true }
extra_body = { stop = [], nested = { list = [1, { a = 2 }], empty = {} } }
[[datasets]]
name = "B3"
path = ["data/*.jsonl", "more.parquet"]
token_budget = 10_000_000
turns = "all"
[datasets.generation]
max_new_tokens = 4096
extra_body = { min_p = 0.1 }
[[datasets]]
name = "B4"
path = "b4.jsonl"
system_prompt = "Line one\\r\\nüber \\u2028"
[costs]
gpu_hour_usd = 2.5
[api.openrouter]
base_url = "https://openrouter.ai/api/v1"
model = "some/model"
api_key_env = "OPENROUTER_API_KEY"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


def faults(folder: Path, text: str) -> list[str]:
    path = write(folder, text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    lines = str(caught.value).split("\n")
    assert all(line.startswith(f"{path}: ") for line in lines)
    return [line.removeprefix(f"{path}: ") for line in lines]


def test_a_good_file_is_loaded(tmp_path: Path) -> None:
    config = load(write(tmp_path, GOOD))
    assert config.engine.kind is EngineKind.LOCAL
    assert config.engine.gpus == [0, "GPU-1234"]
    assert config.dataset("B3").turns is Turns.ALL
    assert config.dataset("B3").token_budget == 10_000_000
    assert config.generation.temperature == 1


def test_a_datasets_overrides_go_key_by_key(tmp_path: Path) -> None:
    config = load(write(tmp_path, GOOD))
    sampling = config.sampling_for(config.dataset("B3"))
    assert (sampling.max_new_tokens, sampling.temperature) == (4096, 1)
    assert sampling.extra_body == {"stop": [], "nested": {"list": [1, {"a": 2}], "empty": {}}, "min_p": 0.1}
    assert sampling.chat_template_kwargs == {"enable_thinking": True}
    assert config.sampling_for(config.dataset("B4")).max_new_tokens is None


def test_what_is_saved_comes_back_and_is_saved_the_same_again(tmp_path: Path) -> None:
    config = load(write(tmp_path, GOOD))
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    save(config, first)
    again = load(first)
    assert again == config
    assert [again.sampling_for(d) for d in again.datasets] == [config.sampling_for(d) for d in config.datasets]
    save(again, second)
    assert first.read_bytes() == second.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["first.toml", "run.toml", "second.toml"]


def test_saving_spells_defaults_out(tmp_path: Path) -> None:
    save(load(write(tmp_path, GOOD)), tmp_path / "saved.toml")
    text = (tmp_path / "saved.toml").read_text()
    assert "stall_after_s = 300.0" in text
    assert 'at_budget = "drain"' in text


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    config = load(write(tmp_path, GOOD))
    path = tmp_path / "saved.toml"
    save(config, path)
    before = path.read_bytes()
    dataset = DatasetConfig.model_validate({"name": "d", "path": "p", "generation": {"extra_body": {"stop": None}}})
    with pytest.raises(ConfigError, match="holds what TOML cannot"):
        save(config.model_copy(update={"datasets": [dataset]}), path)
    assert path.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["run.toml", "saved.toml"]


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    text = """
name = "bad name"
frozn = 1
[model]
pth = "x"
[engine]
kind = "locall"
tp = true
replicas = 0
gpus = [1.5]
concurrency = 3
[generation]
temperature = inf
top_p = "0.9"
[[datasets]]
name = "a"
path = 3
tokens_budget = 5
[[datasets]]
name = "b"
path = "b.jsonl"
token_budget = 0
at_budget = "drian"
[api."open router"]
base_url = "x"
"""
    assert faults(tmp_path, text) == [
        'name: found "bad name", must be 1 to 64 letters, digits, dots, dashes or underscores, a letter or digit first',
        "model.path: required and missing, write it",
        "model.pth: unknown key `pth`, did you mean `path`?",
        'engine.kind: found "locall", must be local or container or attached or simulated (did you mean `local`?)',
        "engine.gpus[0]: found 1.5, must be a whole number or text in quotes",
        "engine.replicas: found 0, must be at least 1",
        "engine.tp: found true, must be a whole number",
        "engine.concurrency: unknown key here, it belongs in [generation] or [api.NAME]",
        "generation.temperature: found inf, must be a finite number",
        'generation.top_p: found "0.9", must be a number',
        "datasets[0].path: found 3, must be text in quotes or a list",
        "datasets[0].tokens_budget: unknown key `tokens_budget`, did you mean `token_budget`?",
        "datasets[1].token_budget: found 0, must be at least 1",
        'datasets[1].at_budget: found "drian", must be drain or cancel (did you mean `drain`?)',
        'api."open router": found "open router", must be 1 to 64 letters, digits, dots, dashes or underscores, '
        "a letter or digit first",
        'api."open router".model: required and missing, write it',
        "frozn: unknown key `frozn`; known are name, model, engine, generation, driver, guards, datasets, forecast, costs, "
        "api, telemetry",
    ]


def test_missing_sections_are_asked_for_with_what_they_need(tmp_path: Path) -> None:
    assert faults(tmp_path, 'name = "x"') == [
        "model: the section [model] is missing, write it with path",
        "engine: the section [engine] is missing, write it with kind",
        "datasets: missing, write at least one [[datasets]] with name and path",
    ]
    assert "datasets: found [], must be a list with at least 1" in faults(tmp_path, 'name = "x"\ndatasets = []')
    wrong = faults(tmp_path, 'name = "x"\nmodel = "m"\ndatasets = { name = "a" }')
    assert 'model: found "m", must be a table' in wrong
    assert 'datasets: found {"name": "a"}, must be a list' in wrong


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'name = "x"\nmodel = = 3\n', "not valid TOML: Invalid value (at line 2, column 9)"),
        (b'name = "x"\nmodel = "y', "(at line 2"),
        (b'name = "x"\nname = "y"\n', "(at line 2, column 11)"),
        (b'name = "x"\nmodel = "\xff"\n', "not UTF-8 (byte 21)"),
    ],
)
def test_what_is_no_toml_is_told_with_its_line(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "run.toml").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "run.toml")
    assert str(caught.value).startswith(f"{tmp_path}/run.toml: ")
    assert words in str(caught.value)


def test_a_file_that_is_not_there_or_is_a_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.toml: does not exist"):
        load(tmp_path / "gone.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)


def test_an_editors_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    assert load(write(tmp_path, "\ufeff" + GOOD)).name == "nightly"


def test_secrets_are_not_repeated_in_errors(tmp_path: Path) -> None:
    text = GOOD.replace('api_key_env = "OPENROUTER_API_KEY"', "api_key_env = 12345678").replace('"WARN"', "87654321")
    lines = faults(tmp_path, text)
    assert len(lines) == 2
    assert "12345678" not in "".join(lines)
    assert "87654321" not in "".join(lines)


def test_a_long_value_is_shortened(tmp_path: Path) -> None:
    (line,) = faults(tmp_path, GOOD.replace('"nightly"', '"' + "n" * 500 + '"'))
    assert "…" in line
    assert len(line) < 250


def minimal(**sections: Any) -> RunConfig:
    base: dict[str, Any] = {"name": "x", "model": {"path": "m"}, "engine": {"kind": "local"}}
    return RunConfig.model_validate(base | {"datasets": [{"name": "d", "path": "p"}]} | sections)


def test_unusual_but_legal_texts_survive_saving(tmp_path: Path) -> None:
    text = 'a "quote" \\ back\x00slash\r\n\ttab \u2028 \x7f'
    config = minimal(datasets=[{"name": "d.1", "path": "p", "system_prompt": text}])
    save(config, tmp_path / "x.toml")
    assert load(tmp_path / "x.toml").datasets[0].system_prompt == text
