"""What is seen before a start."""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from backend.config import RunConfig
from backend.job.engine_interpreter import Finding
from backend.job.gpu import GpuUnavailable
from backend.job.gpu_use import GpuHold
from backend.job.preflight import check, check_model, judge_holds
from backend.job.process_tree import boot_id, read_stat
from backend.job.server_record import ServerRecord, save_record
from backend.records import Severity
from backend.run_dir import RunDir


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").touch()
    return folder


def make_config(model: Path | str, *args: str, concurrency: int = 8, floor_gb: float = 0, **engine: Any) -> RunConfig:
    fields = {"kind": "local", "command": [sys.executable], "args": list(args)} | engine
    return RunConfig.model_validate(
        {
            "name": "test",
            "model": {"path": str(model)},
            "engine": fields,
            "generation": {"concurrency": concurrency},
            "driver": {"disk_floor_gb": floor_gb},
            "datasets": [{"name": "A", "path": "a.jsonl"}],
        }
    )


def errors(findings: list[Finding]) -> list[str]:
    return [finding.sentence for finding in findings if finding.severity is Severity.ERROR]


def test_nothing_is_found_where_all_is_well(run: RunDir, model: Path) -> None:
    assert errors(check(make_config(model), run, dict(os.environ))) == []


def test_a_taken_port_is_named_with_its_holder(run: RunDir, model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        port = foreign.getsockname()[1]
        [sentence] = errors(check(make_config(model, port=port), run, dict(os.environ)))
    assert f"engine.port: {port} (replica 0) is held by pid {os.getpid()} (" in sentence


def test_the_port_of_a_server_that_will_be_taken_over_is_no_fault(run: RunDir, model: Path) -> None:
    stat = read_stat(os.getpid())
    assert stat is not None
    with socket.create_server(("127.0.0.1", 0)) as ours:
        port = ours.getsockname()[1]
        record = ServerRecord("0", "aa", boot_id(), "127.0.0.1", port, "k", [], 0.0, 0, main=stat.mark)
        save_record(run.servers, record)
        assert errors(check(make_config(model, port=port), run, dict(os.environ))) == []


def test_ports_do_not_run_past_the_last_one(run: RunDir, model: Path) -> None:
    config = make_config(model, "--device", "cpu", port=65535, replicas=2)
    assert any("would need port 65536" in sentence for sentence in errors(check(config, run, dict(os.environ))))


def test_a_full_disk_is_told(run: RunDir, model: Path) -> None:
    [sentence] = errors(check(make_config(model, floor_gb=1e9), run, dict(os.environ)))
    assert "below driver.disk_floor_gb = 1e+09: no prompt would be admitted. Make room." in sentence


def test_too_few_open_files_are_told(run: RunDir, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    [sentence] = errors(check(make_config(model, concurrency=2000), run, dict(os.environ)))
    assert sentence.startswith("ulimit -n is 1024, and 2000 requests in flight need 2256 open files. Run `ulimit -n 65536`")


def test_who_is_on_the_gpus_is_told_by_number_and_command(run: RunDir, model: Path) -> None:
    asked: list[object] = []

    def gpu_holds(gpus: object) -> list[GpuHold]:
        asked.append(gpus)
        return [GpuHold("1", os.getpid(), 30 << 30), GpuHold("1", None, None)]

    found = errors(check(make_config(model, gpus=[1]), run, dict(os.environ), gpu_holds=gpu_holds))
    assert asked == [[1]]
    assert f"GPU 1: pid {os.getpid()} (" in found[0]
    assert "holds 30.0 GiB there. End it, or choose other GPUs" in found[0]
    assert "GPU 1: a process holds memory there" in found[1]


def test_a_process_with_little_memory_on_a_gpu_is_only_a_warning() -> None:
    [finding] = judge_holds([GpuHold("0", None, 300 << 20)])
    assert finding.severity is Severity.WARNING


def test_a_driver_that_does_not_tell_who_is_on_the_gpus_is_a_warning(run: RunDir, model: Path) -> None:
    def gpu_holds(gpus: object) -> list[GpuHold]:
        raise GpuUnavailable("There is no NVIDIA driver.")

    findings = check(make_config(model), run, dict(os.environ), gpu_holds=gpu_holds)
    assert [finding.severity for finding in findings if "GPU" in finding.sentence] == [Severity.WARNING]


def test_a_missing_command_and_a_missing_variable_are_told(run: RunDir, model: Path) -> None:
    [sentence] = errors(check(make_config(model, command=["/nowhere/sglang"]), run, dict(os.environ)))
    assert "/nowhere/sglang is not there or not executable" in sentence
    [sentence] = errors(check(make_config(model, env_from=["HF_TOKEN"]), run, {}))
    assert "HF_TOKEN, which is not set" in sentence


def test_a_missing_docker_is_told(run: RunDir, model: Path) -> None:
    config = make_config(model, "--device", "cpu", kind="container", command=None, image="i", docker="/nowhere/docker")
    [sentence] = errors(check(config, run, dict(os.environ)))
    assert "/nowhere/docker cannot be run" in sentence


def test_an_attached_engine_needs_only_its_key(run: RunDir) -> None:
    config = make_config("any", kind="attached", command=None, urls=["http://127.0.0.1:1"], api_key_env="THEIR_KEY")
    [sentence] = errors(check(config, run, {}))
    assert "THEIR_KEY is not set" in sentence
    assert errors(check(config, run, {"THEIR_KEY": "k"})) == []


def test_a_simulated_engine_needs_no_model(run: RunDir) -> None:
    assert errors(check(make_config("/nowhere", kind="simulated", command=None), run, dict(os.environ))) == []


def model_errors(path: Path | str) -> list[str]:
    return [finding.sentence for finding in check_model(str(path))]


def test_a_model_folder_must_hold_a_configuration_and_all_weights(model: Path, tmp_path: Path) -> None:
    assert model_errors(model) == []
    (model / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}})
    )
    assert "lacks 1 of 2 weight files (model-2.safetensors, ...)" in model_errors(model)[0]
    (model / "model.safetensors.index.json").write_text("[]")
    assert "cannot be read. Download it again" in model_errors(model)[0]
    empty = tmp_path / "empty"
    empty.mkdir()
    found = model_errors(empty)
    assert "holds no config.json" in found[0]
    assert "holds no weights" in found[1]


def test_a_model_is_a_folder_or_an_id() -> None:
    assert model_errors("Qwen/Qwen3-8B") == []
    assert model_errors("gpt2") == []
    assert "there is no /nowhere/model" in model_errors("/nowhere/model")[0]
    assert "does not understand ~. Write /" in model_errors("~/model")[0]
    assert "neither a folder here nor of the form" in model_errors("Qwen/Qwen3/8B")[0]
