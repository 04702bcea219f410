"""What README and docs/configuration.md say is so: examples load, tables agree with the code, commands and links exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from backend.__main__ import build_parser
from backend.config import (
    ApiConfig,
    ConfigError,
    CostsConfig,
    DatasetConfig,
    DriverConfig,
    EngineConfig,
    EngineKind,
    GenerationConfig,
    GuardsConfig,
    ModelConfig,
    RunConfig,
    TelemetryConfig,
    load,
)
from backend.config.checks import USELESS
from backend.config.live import DATASET_SETTINGS
from backend.config.sglang_flags import REFUSED, SHAPING
from backend.control.create import create, with_absolute_paths
from backend.engine_cpu.place import engine_settings
from backend.prompts import PromptReader
from backend.records import Prompt
from backend.rows import COLUMNS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONFIGURATION = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").rglob("*.toml"))
# heading of docs/configuration.md → its section, and the keys that have tables or headings of their own
SECTIONS: dict[str, tuple[type[BaseModel], set[str]]] = {
    "The run": (RunConfig, set(RunConfig.model_fields) - {"name"}),
    "`[model]`": (ModelConfig, set()),
    "`[engine]`": (EngineConfig, set()),
    "`[generation]`": (GenerationConfig, set()),
    "`[driver]`": (DriverConfig, set()),
    "`[guards]`": (GuardsConfig, set()),
    "`[[datasets]]`": (DatasetConfig, set()),
    "`[costs]`": (CostsConfig, set()),
    "`[api.NAME]`": (ApiConfig, set()),
    "`[telemetry]`": (TelemetryConfig, set()),
}


def part_below(page: str, heading: str) -> str:
    """The text below a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


def blocks(page: str, language: str) -> list[str]:
    """Fenced blocks of a language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [text for tag, text in found if tag == language]


def table(text: str) -> list[list[str]]:
    """The cells of the tables in a text, without headings."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return [row for row in rows if row[0].startswith("`")]


def as_documented(section: type[BaseModel], key: str) -> str:
    """The default of a key in the words of the tables."""
    field = section.model_fields[key]
    if field.is_required():
        return "required"
    value: Any = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    if isinstance(value, BaseModel):
        return "`{}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, Enum | str):
        return f'`"{value}"`'
    return f"`{value}`"


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_key_stands_in_its_table_with_its_default(heading: str) -> None:
    section, elsewhere = SECTIONS[heading]
    told = {row[0].strip("`"): row[2] for row in table(part_below(CONFIGURATION, heading))}
    assert told == {key: as_documented(section, key) for key in section.model_fields if key not in elsewhere}


def test_the_table_of_the_engine_tells_which_kinds_a_key_is_for() -> None:
    told = {row[0].strip("`"): row[3] for row in table(part_below(CONFIGURATION, "`[engine]`"))}
    for key, words in told.items():
        useful = {kind.value for kind in EngineKind if key not in USELESS[kind]}
        if not words or words == "all":
            expected = set(EngineKind)
        elif words == "all but attached":
            expected = set(EngineKind) - {EngineKind.ATTACHED}
        else:
            expected = {EngineKind(word.strip()) for word in words.split(",")}
        if key == "stop_deadline_s":
            continue  # accepted for all, and of no effect where nothing is stopped
        assert useful == {kind.value for kind in expected}, key


def test_the_complete_example_loads(tmp_path: Path) -> None:
    (block,) = blocks(CONFIGURATION, "toml")
    path = tmp_path / "run.toml"
    path.write_text(block, encoding="utf-8")
    config = load(path)
    assert set(tomllib.loads(block)) == set(RunConfig.model_fields) - {"frozen"}
    assert config.sampling_for(config.dataset("dialogues")).chat_template_kwargs == {"enable_thinking": False}


def test_the_errors_that_are_shown_are_those_that_come(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    text = 'name = "a"\nmodel = { path = "m" }\n[[datasets]]\nname = "math"\npath = "nowhere/*.jsonl"\n'
    shapes = '[engine]\nkind = "local"\npyhton = "p"\n[generation]\ntemperature = "0.6"\n'
    checks = '[engine]\nkind = "local"\nargs = ["--port", "30000"]\nenv = { HF_TOKEN = "x" }\n'
    for shown, faulty in zip(blocks(CONFIGURATION, "")[:2], (shapes, checks), strict=True):
        path.write_text(text + faulty, encoding="utf-8")
        with pytest.raises(ConfigError) as caught:
            load(path)
        assert str(caught.value).replace(str(path), "run.toml").splitlines() == shown.splitlines()


def test_every_flag_that_is_refused_or_shapes_the_data_is_named() -> None:
    named = set(re.findall(r"`(--[a-z-]+)", CONFIGURATION))
    assert set(REFUSED) | SHAPING <= named


def test_every_setting_that_can_change_live_is_named() -> None:
    told = part_below(CONFIGURATION, "What can change while the run goes on")
    assert all(f"`{key}`" in told for key in ("concurrency", "order", *(f"NAME.{setting}" for setting in DATASET_SETTINGS)))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_loads_and_its_prompts_are_there(example: Path) -> None:
    config = load(example)
    assert all((example.parent / path).is_file() for dataset in config.datasets for path in dataset.paths)


def test_there_is_an_example_for_each_kind_of_engine() -> None:
    assert {load(example).engine.kind for example in EXAMPLES} == set(EngineKind)


def test_the_prompts_of_the_examples_are_all_good(tmp_path: Path) -> None:
    run = create(ROOT / "examples/attached.toml", tmp_path)
    config = load(run.config)
    assert config.frozen is not None
    dataset = config.datasets[0]
    found = list(PromptReader(dataset, config.frozen.prompt_files[dataset.name], run.root))
    assert len(found) == 24
    assert all(isinstance(prompt, Prompt) for prompt in found)


def test_the_example_of_the_cpu_engine_is_what_the_cpu_engine_needs() -> None:
    path = ROOT / "examples/engine-cpu.toml"
    config = with_absolute_paths(load(path), path.parent)
    wanted = engine_settings(ROOT)
    wanted["model"]["path"] = config.model.path  # not there before `make engine-cpu`, and relative all the same
    assert config.model.model_dump(exclude_none=True) == wanted["model"]
    assert config.engine.model_dump(mode="json", exclude_defaults=True) == wanted["engine"]
    assert Path(config.model.path).is_absolute()


def test_every_package_of_the_requirements_is_explained() -> None:
    pinned = re.findall(r"^([A-Za-z0-9-]+)==", (ROOT / "requirements.txt").read_text(encoding="utf-8"), re.MULTILINE)
    told = [name for row in part_below(README, "Requirements").splitlines() for name in re.findall(r"[a-z][\w-]+", row)]
    assert len(pinned) > 10
    assert set(pinned) <= set(told)


def test_every_module_of_the_backend_has_its_remark() -> None:
    tree = re.findall(r"^  (\w+\.py|\w+/) +\S", README, re.MULTILINE)
    assert sorted(tree) == sorted(_modules(ROOT / "backend"))
    job = README[README.index("The supervisor, `backend/job/`") :]
    job = job[: job.index("House rules")]
    assert set(re.findall(r"`(\w+\.py|\w+/)`", job)) == set(_modules(ROOT / "backend/job"))


def test_every_column_of_a_shard_is_explained() -> None:
    told = [name for row in table(part_below(README, "Where the data is")) for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(told) == sorted(COLUMNS)


def test_every_command_in_a_shell_block_is_understood() -> None:
    commands = [
        shlex.split(found, comments=True)
        for block in blocks(README, "sh")
        for found in re.findall(r"^python -m backend (.*)$", block, re.MULTILINE)
    ]
    assert len(commands) >= 8
    for command in commands:
        build_parser().parse_args(command)  # leaves with exit code 2 where it does not understand


@pytest.mark.parametrize(("target", "command"), [("demo", "demo --port 8600"), ("run", "dashboard --port 8600")])
def test_make_takes_a_port(target: str, command: str) -> None:
    told = subprocess.run(["make", "-n", target, "PORT=8600"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    assert f"-m backend {command}" in told.stdout


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.M)}
    assert {"setup", "test", "engine-cpu"} <= named
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not link.startswith("http") and not (page.parent / link).exists()] == []


def test_the_unit_starts_what_can_be_started() -> None:
    unit = (ROOT / "examples/headway@.service").read_text(encoding="utf-8")
    assert "-m backend.job runs/%i" in unit
    assert (ROOT / "backend/job/__main__.py").is_file()
    assert "KillMode=process" in unit  # else systemd would end the servers with the supervisor


def _modules(folder: Path) -> list[str]:
    found = [path.name for path in folder.glob("*.py")]
    return found + [f"{path.name}/" for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__"]
