"""The demo's run: made once, gone on with while it is unfinished, made again under the next name."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.commands import demo
from backend.config import EngineKind, load
from backend.control import ControlError
from backend.prompts import PromptReader
from backend.records import Prompt, RunPhase
from backend.run_dir import RunDir
from backend.simulator import fake_nvml
from backend.simulator.command_line import parse_settings
from tests.made_run import beat, job_status

EXAMPLE = demo.EXAMPLES / "demo.toml"


@pytest.fixture(autouse=True)
def own_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(demo, "NVML_LIBRARY", tmp_path / "library")


def test_every_prompt_of_the_demo_is_good_and_none_comes_twice(tmp_path: Path) -> None:
    config = load(demo.make_demo(EXAMPLE, RunDir(tmp_path / "runs/demo")).config)
    assert config.frozen is not None
    assert [dataset.name for dataset in config.datasets] == ["B1", "B2", "B3", "B4"]
    for dataset in config.datasets:
        prompts = list(PromptReader(dataset, config.frozen.prompt_files[dataset.name], tmp_path))
        assert all(isinstance(prompt, Prompt) for prompt in prompts)
        texts = [str(prompt.messages) for prompt in prompts if isinstance(prompt, Prompt)]
        assert len(set(texts)) == len(texts) >= 60


def test_the_simulated_server_tells_the_four_datasets_apart(tmp_path: Path) -> None:
    config = load(demo.make_demo(EXAMPLE, RunDir(tmp_path / "runs/demo")).config)
    assert config.frozen is not None
    rules = parse_settings(config.engine.args).rules
    means = []
    for dataset in config.datasets:
        prompts = PromptReader(dataset, config.frozen.prompt_files[dataset.name], tmp_path)
        used = {
            next(rule for rule in rules if rule.matches(str(prompt.messages))).mean
            for prompt in prompts
            if isinstance(prompt, Prompt)
        }
        assert len(used) == 1, dataset.name
        means += used
    assert means == sorted(means)
    assert (means[0], means[-1]) == (420, 3000)


def test_an_unfinished_demo_goes_on_and_a_finished_one_is_made_again(tmp_path: Path) -> None:
    first = demo.unfinished_demo("demo", tmp_path)
    assert (first.name, load(first.config).name) == ("demo", "demo")
    beat(first, job_status(phase=RunPhase.STOPPED), at=1.0)
    assert demo.unfinished_demo("demo", tmp_path) == first
    beat(first, job_status(phase=RunPhase.FINISHED), at=2.0)
    second = demo.unfinished_demo("demo", tmp_path)
    assert (second.name, load(second.config).name) == ("demo-2", "demo-2")


def test_the_demo_brings_its_gpus_along(tmp_path: Path) -> None:
    run = demo.make_demo(EXAMPLE, RunDir(tmp_path / "runs/demo"))
    engine = load(run.config).engine
    folder = run.root / demo.GPU_FOLDER
    assert engine.env["FAKE_NVML_DIR"] == str(folder)
    assert engine.args[-2:] == ["--gpu-state-file", str(folder)]
    assert Path(engine.env["HEADWAY_NVML_LIBRARY"]).exists()
    assert (folder / "box").read_text() == "count 4\n"


def test_without_a_compiler_the_demo_has_no_gpus_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Path) -> Path:
        raise fake_nvml.FakeNvmlError("the stand-in for NVML needs a C compiler and there is no 'cc': install gcc.")

    monkeypatch.setattr(fake_nvml, "build", fail)
    config = load(demo.make_demo(EXAMPLE, RunDir(tmp_path / "runs/demo")).config)
    assert config.telemetry.gpu is False
    assert config.engine.env == {}
    assert "install gcc" in capsys.readouterr().err


def test_the_demo_on_the_real_engine_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    example = tmp_path / "a/b/demo-cpu.toml"
    example.write_text((demo.EXAMPLES / "demo-cpu.toml").read_text())
    assert load(example).engine.kind is EngineKind.LOCAL
    with pytest.raises(ControlError, match="make engine-cpu"):
        demo.make_demo(example, RunDir(tmp_path / "runs/demo-cpu"))


def test_the_demo_of_a_guard_has_a_dataset_of_empty_answers_and_guards_that_look(tmp_path: Path) -> None:
    run = demo.unfinished_demo("demo-held", tmp_path)
    config = load(run.config)
    assert config.guards_for(config.dataset("B2")).enabled
    lengths = Path(config.engine.args[config.engine.args.index("--lengths") + 1])
    assert '"empty_share": 0.87' in lengths.read_text()
