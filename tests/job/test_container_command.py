"""The arguments of `docker run`, and Docker's words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backend.config import RunConfig
from backend.job.container_command import ContainerCommand, container_command
from backend.job.docker_command import explain_docker_error
from backend.job.launch_command import Launch
from backend.job.replica import StartRefused
from backend.run_dir import RunDir


def make_command(
    *args: str, model: str = "Qwen/Qwen3-8B", environ: dict[str, str] | None = None, **engine: Any
) -> ContainerCommand:
    fields = {"kind": "container", "image": "lmsysorg/sglang:v0.5.23", "args": list(args)} | engine
    config = RunConfig.model_validate(
        {"name": "r", "model": {"path": model}, "engine": fields, "datasets": [{"name": "A", "path": "a.jsonl"}]}
    )
    return container_command(config, environ or {}, Launch(RunDir(Path("/runs/r")), 0, "aa", 31000, "secret"))


def value(command: ContainerCommand, option: str) -> str:
    return command.arguments[command.arguments.index(option) + 1]


def test_a_container_has_our_name_our_labels_and_a_port_on_the_loopback_address() -> None:
    command = make_command(gpus=[2, 3], tp=2, env={"A": "1"}, env_from=["HF_TOKEN"], environ={"HF_TOKEN": "hf"})
    assert value(command, "--name") == "headway-r-0-aa"
    labels = [command.arguments[i + 1] for i, word in enumerate(command.arguments) if word == "--label"]
    assert labels == ["headway.run=/runs/r", "headway.replica=0", "headway.launch=aa"]
    assert value(command, "-p") == "127.0.0.1:31000:31000"
    assert value(command, "--gpus") == '"device=2,3"'
    assert value(command, "--shm-size") == "32g"
    image = command.arguments.index("lmsysorg/sglang:v0.5.23")
    inside = command.arguments[image + 1 :]
    assert inside[:3] == ["python3", "-m", "sglang.launch_server"]
    assert inside[inside.index("--host") + 1] == "0.0.0.0"
    assert inside[inside.index("--config") + 1] == "/headway/server.yaml"
    assert command.env_file.splitlines()[:2] == ["A=1", "HF_TOKEN=hf"]
    assert command.yaml == 'api-key: "secret"\n'
    assert "secret" not in " ".join(command.arguments)
    assert "secret" not in repr(command)
    assert "hf" not in repr(command)


def test_options_of_ones_own_replace_ours() -> None:
    command = make_command(docker_args=["--network=host", "--ipc=host", "--gpus", "all"])
    assert "-p" not in command.arguments
    assert "--shm-size" not in command.arguments
    assert command.arguments.count("--gpus") == 1
    assert value(command, "--host") == "127.0.0.1"


def test_a_model_folder_is_there_inside_too(tmp_path: Path) -> None:
    assert f"{tmp_path}:{tmp_path}:ro" in make_command(model=str(tmp_path)).arguments
    assert "--gpus" not in make_command("--device", "cpu").arguments


def test_a_value_of_several_lines_is_refused() -> None:
    with pytest.raises(StartRefused, match="the value of A has several lines"):
        make_command(env={"A": "1\n2"})


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?", "does not run"),
        ("permission denied while trying to connect to the Docker daemon socket", "group docker"),
        ('could not select device driver "" with capabilities: [[gpu]]', "NVIDIA Container Toolkit"),
        ("Bind for 127.0.0.1:31000 failed: port is already allocated", "Set engine.port"),
        ("pull access denied for nope, repository does not exist", "Correct engine.image"),
        ('Conflict. The container name "/x" is already in use by container "y"', "docker rm -f"),
        ("something else", "`docker run` failed: something else"),
        ("", "it said nothing"),
    ],
)
def test_dockers_words_get_a_remedy(said: str, words: str) -> None:
    assert words in explain_docker_error("run", said)
