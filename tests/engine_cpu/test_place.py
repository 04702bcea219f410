"""The settings of a run whose engine is the CPU engine."""

from __future__ import annotations

from pathlib import Path

from backend.config import EngineConfig, EngineKind, ModelConfig
from backend.engine_cpu.place import engine_settings


def test_the_settings_are_valid_sections_of_a_run() -> None:
    settings = engine_settings(Path("/opt/headway"))
    engine = EngineConfig.model_validate(settings["engine"])
    assert engine.kind is EngineKind.LOCAL
    assert engine.python == "/opt/headway/.engine-cpu/venv/bin/python"
    assert engine.env["OMP_NUM_THREADS"] == "1"
    assert Path(engine.env["PYTHONPATH"], "sitecustomize.py").is_file()
    assert ModelConfig.model_validate(settings["model"]).path == "/opt/headway/.engine-cpu/model"


def test_what_headway_adds_to_every_launch_is_left_to_it() -> None:
    flags = [argument.split("=")[0] for argument in engine_settings(Path("/opt/headway"))["engine"]["args"]]
    assert not {"--model-path", "--host", "--port", "--api-key", "--config", "--enable-metrics"} & set(flags)
