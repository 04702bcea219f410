"""What a server is started with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backend.config import RunConfig
from backend.job.launch_command import (
    Launch,
    gpus_of,
    key_file,
    local_command,
    redact,
    server_environment,
    wanted_port,
    without_flag,
)
from backend.job.replica import StartRefused
from backend.run_dir import RunDir

ROOT = Path(__file__).resolve().parents[2]


def make_config(*args: str, served_name: str | None = None, **engine: Any) -> RunConfig:
    fields = {"kind": "local", "python": "/opt/sglang/bin/python", "args": list(args)} | engine
    return RunConfig.model_validate(
        {
            "name": "test",
            "model": {"path": "Qwen/Qwen3-8B", "served_name": served_name},
            "engine": fields,
            "datasets": [{"name": "A", "path": "a.jsonl"}],
        }
    )


def argv_of(config: RunConfig, environ: dict[str, str] | None = None) -> list[str]:
    return local_command(config, environ or {}, Launch(RunDir(Path("/runs/r")), 0, "aa", 31000, "k")).argv


def test_sglang_is_started_on_the_loopback_address_with_metrics_and_a_key_file() -> None:
    argv = argv_of(make_config("--reasoning-parser", "qwen3", served_name="q", tp=2, gpus=[0, 1]))
    assert argv[:3] == ["/opt/sglang/bin/python", "-m", "sglang.launch_server"]
    assert argv[3:5] == ["--reasoning-parser", "qwen3"]
    for flag, value in {
        "--model-path": "Qwen/Qwen3-8B",
        "--host": "127.0.0.1",
        "--port": "31000",
        "--served-model-name": "q",
        "--tp-size": "2",
        "--watchdog-timeout": "1800",
        "--config": "/runs/r/servers/0.yaml",
    }.items():
        assert argv[argv.index(flag) + 1] == value
    assert "--enable-metrics" in argv
    assert "--enable-cache-report" in argv


def test_a_watchdog_of_ones_own_stays() -> None:
    assert [arg for arg in argv_of(make_config("--watchdog-timeout=60")) if "watchdog" in arg] == ["--watchdog-timeout=60"]


def test_a_command_of_ones_own_gets_the_arguments_too() -> None:
    argv = argv_of(make_config(python=None, command=["sglang", "serve"]))
    assert argv[:2] == ["sglang", "serve"]
    assert "--model-path" in argv


def test_a_configuration_file_of_ones_own_is_joined_with_the_key(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("mem-fraction-static: 0.8")
    config = make_config("--config", str(own), "--device", "cpu")
    assert key_file(config.engine, "k") == 'mem-fraction-static: 0.8\napi-key: "k"\n'
    argv = argv_of(config)
    assert argv.count("--config") == 1
    assert str(own) not in argv


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("api_key: x", "holds an API key"),
        ("admin-api-key: x", "holds an API key"),
        ("{port: 1}", "one `key: value` a line"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_configuration_file_that_cannot_be_joined_is_refused(tmp_path: Path, text: str | None, words: str) -> None:
    own = tmp_path / "own.yaml"
    if text is not None:
        own.write_text(text)
    with pytest.raises(StartRefused, match=words):
        key_file(make_config("--config", str(own)).engine, "k")


def test_the_environment_loses_the_multiprocess_directory_and_gains_who_it_belongs_to() -> None:
    config = make_config(env={"A": "1"}, env_from=["HF_TOKEN"])
    environ = {"PATH": "/bin", "PROMETHEUS_MULTIPROC_DIR": "/tmp/x", "HF_TOKEN": "t"}
    env = server_environment(config, environ, run="/runs/r", replica="0", launch="aa", gpus=["GPU-1", 2])
    assert env == {
        "PATH": "/bin",
        "A": "1",
        "HF_TOKEN": "t",
        "CUDA_VISIBLE_DEVICES": "GPU-1,2",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "HEADWAY_RUN": "/runs/r",
        "HEADWAY_REPLICA": "0",
        "HEADWAY_LAUNCH": "aa",
    }


@pytest.mark.parametrize(
    ("inherited", "given", "seen"),
    [
        (str(ROOT), {}, None),
        (f"{ROOT}:/site/libs", {}, "/site/libs"),
        (str(ROOT), {"PYTHONPATH": "/shim"}, "/shim"),
        ("", {}, None),
    ],
)
def test_a_server_of_another_interpreter_does_not_find_headways_modules(
    inherited: str, given: dict[str, str], seen: str | None
) -> None:
    env = server_environment(
        make_config(env=given), {"PYTHONPATH": inherited}, run="/runs/r", replica="0", launch="aa", gpus=None
    )
    assert env.get("PYTHONPATH") == seen


def test_replicas_get_disjoint_gpus_and_ports_of_their_own() -> None:
    engine = make_config(replicas=2, tp=2, gpus=[0, 1, 4, 5], port=31000).engine
    assert [gpus_of(engine, index, {}) for index in range(2)] == [[0, 1], [4, 5]]
    assert [wanted_port(engine, index) for index in range(2)] == [31000, 31001]


def test_gpus_are_cut_from_those_that_headway_may_see() -> None:
    engine = make_config(replicas=2).engine
    assert [gpus_of(engine, index, {"CUDA_VISIBLE_DEVICES": "6,7"}) for index in range(2)] == [["6"], ["7"]]
    assert [gpus_of(engine, index, {}) for index in range(2)] == [[0], [1]]
    with pytest.raises(StartRefused, match=r"1 GPUs are given .* 2 replicas of tp 1 need 2"):
        gpus_of(engine, 0, {"CUDA_VISIBLE_DEVICES": "6"})


def test_one_replica_gets_all_gpus_given_and_else_what_headway_sees() -> None:
    assert gpus_of(make_config(gpus=[0, 1, 2, 3]).engine, 0, {}) == [0, 1, 2, 3]
    assert gpus_of(make_config().engine, 0, {"CUDA_VISIBLE_DEVICES": "3"}) is None
    assert gpus_of(make_config("--device", "cpu", replicas=2).engine, 0, {}) is None


def test_secrets_are_not_shown() -> None:
    argv = ["python", "--api-key", "a", "--hf-token=b", "--max-total-tokens", "5", "--tokenizer-path", "p"]
    assert redact(argv) == ["python", "--api-key", "***", "--hf-token=***", "--max-total-tokens", "5", "--tokenizer-path", "p"]


def test_a_flag_is_left_out_in_both_spellings() -> None:
    assert without_flag(["--a", "1", "--config", "x", "--b", "--config=y"], "--config") == ["--a", "1", "--b"]
