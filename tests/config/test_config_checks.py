"""What must hold between the fields of a configuration."""

from __future__ import annotations

from typing import Any

import pytest

from backend.config import RunConfig, check


def config(engine: dict[str, Any] | None = None, **sections: Any) -> RunConfig:
    base: dict[str, Any] = {
        "name": "x",
        "model": {"path": "m"},
        "engine": engine or {"kind": "local"},
        "datasets": [{"name": "d", "path": "p"}],
    }
    return RunConfig.model_validate(base | sections)


def only(faults: list[str]) -> str:
    assert len(faults) == 1, faults
    return faults[0]


GOOD_ENGINES: list[dict[str, Any]] = [
    {"kind": "local"},
    {"kind": "local", "command": ["/opt/run.sh"], "gpus": [0, 1, 2, 3], "replicas": 2, "tp": 2},
    {"kind": "local", "args": ["--dp-size", "8", "--enable-dp-attention", "--config", "x.yaml", "--nnodes", "1"]},
    {"kind": "local", "args": ["--speculative-algorithm", "EAGLE", "--max-running-requests", "64"]},
    {"kind": "local", "env": {"TOKENIZERS_PARALLELISM": "false", "NCCL_DEBUG": "INFO"}, "env_from": ["HF_TOKEN"]},
    {"kind": "container", "image": "lmsysorg/sglang:v0.5.23", "docker_args": ["-v", "/m:/m", "-e", "HF_TOKEN", "--ipc=host"]},
    {"kind": "attached", "urls": ["http://a:30000", "https://b/v1"], "api_key_env": "KEY_OF_B"},
    {"kind": "simulated", "replicas": 4, "args": ["--port", "anything the simulator takes"]},
]


@pytest.mark.parametrize("engine", GOOD_ENGINES)
def test_an_engine_that_can_be_used_has_no_fault(engine: dict[str, Any]) -> None:
    assert check(config(engine)) == []


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ({"kind": "attached"}, "engine.urls: required"),
        ({"kind": "attached", "urls": ["localhost:30000"]}, 'engine.urls[0]: found "localhost:30000", must be an address'),
        ({"kind": "attached", "urls": ["http://a:99999"]}, "engine.urls[0]: found"),
        ({"kind": "attached", "urls": ["http://a b"]}, "engine.urls[0]: found"),
        ({"kind": "attached", "urls": ["http://a?x=1"]}, "nothing after ? or #"),
        ({"kind": "attached", "urls": ["http://a", "http://a/"]}, "engine.urls[1]: found"),
        ({"kind": "attached", "urls": ["http://a"], "gpus": [0]}, "engine.gpus: means nothing"),
        ({"kind": "attached", "urls": ["http://a"], "replicas": 2}, "engine.replicas: means nothing"),
        ({"kind": "container"}, "engine.image: required"),
        ({"kind": "container", "image": "i", "python": "p"}, "engine.python: means nothing"),
        ({"kind": "container", "image": "i", "docker_args": ["--name=x"]}, "engine.docker_args[0]: --name is refused"),
        ({"kind": "local", "image": "i"}, "engine.image: means nothing"),
        ({"kind": "local", "python": "p", "command": ["c"]}, "engine.command: stands beside engine.python"),
        ({"kind": "local", "command": []}, "engine.command: found an empty list"),
        ({"kind": "local", "gpus": [0, 1, 0]}, 'engine.gpus[2]: found "0", which stands in engine.gpus[0] already'),
        ({"kind": "local", "gpus": [0, 1, 2], "replicas": 2, "tp": 2}, "found 3, but 2 replicas of tp 2 need 4"),
        ({"kind": "local", "env": {"CUDA_VISIBLE_DEVICES": "0"}}, "Write engine.gpus"),
        ({"kind": "local", "env": {"PROMETHEUS_MULTIPROC_DIR": "/x"}}, "counters would outlive"),
        ({"kind": "local", "env": {"A B": "/x"}}, 'engine.env."A B": is no name'),
        ({"kind": "local", "env": {"A": "/x"}, "env_from": ["A"]}, "stands in engine.env_from as well"),
    ],
)
def test_an_engine_that_cannot_be_used_is_told_why(engine: dict[str, Any], words: str) -> None:
    assert words in only(check(config(engine)))


@pytest.mark.parametrize(
    "command",
    [
        ["docker", "run", "--gpus", "all", "lmsysorg/sglang"],
        ["/usr/bin/docker", "run"],
        ["sudo", "-E", "docker", "run"],
        ["podman", "run"],
    ],
)
@pytest.mark.parametrize("kind", [{"kind": "local"}, {"kind": "container", "image": "i"}])
def test_a_bare_docker_run_is_refused_with_the_advice_to_use_kind_container(kind: dict[str, Any], command: list[str]) -> None:
    assert 'Use engine.kind = "container"' in only(check(config(kind | {"command": command})))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--host", "0.0.0.0"], "--host is refused: Headway chooses it"),
        (["--port=30000"], "write engine.port"),
        (["--model-path", "x"], "Write model.path"),
        (["--tp-size", "8"], "Write engine.tp"),
        (["--tp=8"], "Write engine.tp"),
        (["--tensor-parallel-size", "8"], "Write engine.tp"),
        (["--dp-size", "2"], "Write engine.replicas"),
        (["--nnodes", "2"], "--nnodes is refused"),
        (["--tokenizer-worker-num", "4"], "--tokenizer-worker-num above 1 is refused"),
        (["--disaggregation-mode", "decode"], "address of their router"),
        (["--mem-fraction-static 0.8"], 'must be two: "--mem-fraction-static"'),
        (["0.8", "--x"], 'begins with "0.8"'),
    ],
)
@pytest.mark.parametrize("kind", [{"kind": "local"}, {"kind": "container", "image": "i"}])
def test_flags_that_headway_sets_or_that_would_mislead_it_are_refused(
    kind: dict[str, Any], args: list[str], words: str
) -> None:
    fault = only(check(config(kind | {"args": args})))
    assert fault.startswith("engine.args: ")
    assert words in fault


def test_a_key_among_the_flags_is_refused_and_not_repeated() -> None:
    fault = only(check(config({"kind": "local", "args": ["--api-key", "hunter2"]})))
    assert "--api-key is refused" in fault
    assert "hunter2" not in fault


@pytest.mark.parametrize(("concurrency", "replicas", "refused"), [(48, 1, False), (49, 1, True), (96, 2, False), (97, 2, True)])
def test_speculative_decoding_may_not_silently_cap_what_runs_at_once(concurrency: int, replicas: int, refused: bool) -> None:
    engine = {"kind": "local", "replicas": replicas, "args": ["--speculative-algorithm", "EAGLE"]}
    faults = check(config(engine, generation={"concurrency": concurrency}))
    assert bool(faults) is refused
    if refused:
        assert (
            'runs 48 requests at once, and generation.concurrency asks for 49 a replica. Add "--max-running-requests", "49"'
            in (only(faults))
        )


@pytest.mark.parametrize("name", ["HF_TOKEN", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "MY_SECRET_X", "DB_PASSWORD", "TOKEN"])
def test_a_secret_in_the_environment_table_is_refused_and_not_repeated(name: str) -> None:
    fault = only(check(config({"kind": "local", "env": {name: "hunter2"}})))
    assert f'env_from = ["{name}"]' in fault
    assert "hunter2" not in fault


@pytest.mark.parametrize("args", [["-e", "HF_TOKEN=hunter2"], ["--env=HF_TOKEN=hunter2"], ["-eHF_TOKEN=hunter2"]])
def test_a_secret_among_the_options_of_docker_is_refused(args: list[str]) -> None:
    fault = only(check(config({"kind": "container", "image": "i", "docker_args": args})))
    assert 'env_from = ["HF_TOKEN"]' in fault
    assert "hunter2" not in fault


def test_a_literal_key_where_a_name_belongs_is_refused_and_not_repeated() -> None:
    key = "sk-abcdefghijklmnopqrstuvwxyz"
    for api in (
        {"api_key_env": key},
        {"api_key_file": key},
        {"extra_body": {"api_key": key}},
        {"extra_body": {"p": {"token": key}}},
    ):
        fault = only(check(config(api={"o": {"base_url": "https://x", "model": "m"} | api})))
        assert fault.startswith("api.o.")
        assert key not in fault
    hf = "hf_abcdefghijklmnopqrstuvwx"
    for engine in ({"kind": "local", "env_from": [hf]}, {"kind": "attached", "urls": ["http://a"], "api_key_env": hf}):
        fault = only(check(config(engine)))
        assert "must be the name of an environment variable" in fault
        assert hf not in fault
    fault = only(check(config({"kind": "attached", "urls": ["http://user:hunter2@a"]})))
    assert "hunter2" not in fault


def test_an_api_takes_no_field_that_the_spend_cap_or_the_reading_of_its_answers_rests_on() -> None:
    for field in ("max_tokens", "stream", "model", "n"):
        api = {"base_url": "https://x", "model": "m", "extra_body": {field: 1}}
        assert f"api.o.extra_body.{field}: is refused" in only(check(config(api={"o": api})))


def test_an_api_names_its_key_once() -> None:
    api = {"base_url": "https://x", "model": "m", "api_key_env": "A", "api_key_file": "/f"}
    assert "Keep one of them" in only(check(config(api={"o": api})))


@pytest.mark.parametrize("field", ["messages", "model", "stream", "rid", "n", "temperature", "max_tokens"])
def test_the_extra_body_may_not_say_what_headway_says(field: str) -> None:
    (run,) = check(config(generation={"extra_body": {field: 1}}))
    assert run.startswith(f"generation.extra_body.{field}: is refused: ")
    (own,) = check(config(datasets=[{"name": "d", "path": "p", "generation": {"extra_body": {field: 1}}}]))
    assert own.startswith(f"datasets[0].generation.extra_body.{field}: ")


def test_what_json_does_not_know_cannot_be_sent() -> None:
    generation = {"extra_body": {"a": {"b": [float("inf")]}}, "chat_template_kwargs": {"c": float("nan"), "d": 1}}
    faults = check(config(generation=generation))
    assert [fault.split(":")[0] for fault in faults] == ["generation.extra_body.a", "generation.chat_template_kwargs.c"]


def test_dataset_names_are_unique() -> None:
    datasets = [{"name": name, "path": "p"} for name in ("a", "b", "a")]
    assert only(check(config(datasets=datasets))).startswith('datasets[2].name: found "a", which stands in datasets[0]')


@pytest.mark.parametrize("path", ["", [], ["a", ""]])
def test_a_dataset_names_its_files(path: Any) -> None:
    assert only(check(config(datasets=[{"name": "a", "path": path}]))).startswith("datasets[0].path: found")


def test_a_path_that_no_system_call_takes_is_no_path() -> None:
    assert "must name a file or a pattern" in only(check(config(datasets=[{"name": "d", "path": "a\0b.jsonl"}])))


def test_a_guard_of_the_mean_has_its_limits_in_order() -> None:
    base = {"name": "r", "model": {"path": "m"}, "engine": {"kind": "simulated"}}
    two = [{"name": "a", "path": "x"}, {"name": "b", "path": "x"}]
    wrong = {"min_mean_tokens": 500, "max_mean_tokens": 100}
    run = RunConfig.model_validate({**base, "datasets": two, "guards": wrong})
    assert check(run) == ["guards.min_mean_tokens: found 500, must be below max_mean_tokens, which is 100"]
    own = [two[0], {**two[1], "guards": {"min_mean_tokens": 500}}]
    run = RunConfig.model_validate({**base, "datasets": own, "guards": {"max_mean_tokens": 100}})
    assert check(run) == ["datasets[1].guards.min_mean_tokens: found 500, must be below max_mean_tokens, which is 100"]
    assert run.guards_for(run.dataset("a")).min_mean_tokens is None


def test_a_dataset_overrides_the_guards_of_the_run_key_by_key() -> None:
    base = {"name": "r", "model": {"path": "m"}, "engine": {"kind": "simulated"}}
    own = {"name": "a", "path": "x", "guards": {"max_bad_share": 0.9}}
    run = RunConfig.model_validate({**base, "datasets": [own], "guards": {"enabled": False, "max_truncated_share": 0.1}})
    guards = run.guards_for(run.datasets[0])
    assert (guards.enabled, guards.max_bad_share, guards.max_truncated_share, guards.max_rejected_share) == (
        False,
        0.9,
        0.1,
        0.5,
    )


@pytest.mark.parametrize("name", ["local", "adopted"])
def test_no_api_has_the_name_of_another_source(name: str) -> None:
    assert "the name is taken" in only(check(config(api={name: {"base_url": "https://x", "model": "m"}})))
