"""PURE: what must hold between the fields of a configuration, and what may not be written into one (secrets)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import urlsplit

from backend.config.fault_lines import SECRET_NAME, quoted_key, shown
from backend.config.sglang_flags import flag_faults
from backend.config.shape import EngineConfig, EngineKind, RunConfig

TAKEN_SOURCES: Final = {"local": "the engine", "adopted": "what other scripts made"}  # what a row may name beside an API
CONTAINER_PROGRAMS: Final = frozenset({"docker", "podman", "nerdctl"})
# keys of [engine] that mean nothing for a kind: whoever writes them believes something that is not so
USELESS: Final = {
    EngineKind.LOCAL: ("image", "docker", "docker_args", "urls", "api_key_env"),
    EngineKind.CONTAINER: ("python", "urls", "api_key_env"),
    EngineKind.ATTACHED: (
        "python", "command", "image", "docker", "docker_args", "gpus", "replicas", "tp", "args", "env", "env_from", "port",
    ),
    EngineKind.SIMULATED: ("python", "command", "image", "docker", "docker_args", "urls", "api_key_env"),
}  # fmt: skip
OWN_DOCKER_FLAGS: Final = (
    "--name",
    "--detach",
    "-d",
    "--rm",
    "--restart",
    "--cidfile",
    "-i",
    "-t",
    "-it",
    "--interactive",
    "--tty",
)
OWN_REQUEST_FIELDS: Final = {
    "messages": "comes from the dataset",
    "tools": "comes from the dataset",
    "model": "write model.served_name",
    "stream": "Headway does not stream",
    "stream_options": "Headway does not stream",
    "rid": "Headway numbers its requests",
    "n": "one answer a prompt: write a prompt twice for two",
    "max_tokens": "write generation.max_new_tokens",
    "max_completion_tokens": "write generation.max_new_tokens",
    "temperature": "write generation.temperature",
    "top_p": "write generation.top_p",
    "top_k": "write generation.top_k",
    "seed": "write generation.seed",
    "chat_template_kwargs": "write generation.chat_template_kwargs",
    "return_token_ids": "Headway sets it",
    "return_prompt_token_ids": "Headway sets it",
    "return_meta_info": "Headway sets it",
}
OWN_API_FIELDS: Final = {
    "messages": "comes from the dataset",
    "tools": "comes from the dataset",
    "model": "write the API's model",
    "stream": "Headway streams",
    "stream_options": "Headway asks for the usage",
    "n": "one answer a prompt: write a prompt twice for two",
    "max_tokens": "write generation.max_new_tokens: the spend cap is kept by it",
    "max_completion_tokens": "write generation.max_new_tokens: the spend cap is kept by it",
}
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check(config: RunConfig) -> list[str]:
    """Every fault as `key: what was found and what to do`; an empty list where the configuration can be used."""
    return [*_engine(config), *_requests(config), *_datasets(config), *_guards(config), *_apis(config)]


def _engine(config: RunConfig) -> Iterator[str]:
    engine = config.engine
    for key in USELESS[engine.kind]:
        if getattr(engine, key) != EngineConfig.model_fields[key].get_default(call_default_factory=True):
            yield f'engine.{key}: means nothing with engine.kind = "{engine.kind}". Leave it out, or choose another kind'
    if engine.kind is EngineKind.ATTACHED:
        if not engine.urls:
            yield 'engine.urls: required with engine.kind = "attached": the addresses of the servers, as "http://host:30000"'
        for i, url in enumerate(engine.urls):
            yield from _url(f"engine.urls[{i}]", url)
        yield from _repeated("engine.urls", [url.rstrip("/") for url in engine.urls], "Name each server once")
    if engine.kind is EngineKind.CONTAINER and not engine.image:
        yield 'engine.image: required with engine.kind = "container": the image to run, as "lmsysorg/sglang:v0.5.23"'
    yield from _command(engine)
    if engine.gpus is not None:
        yield from _repeated("engine.gpus", [str(gpu) for gpu in engine.gpus], "Name each GPU once")
        need = engine.replicas * engine.tp
        if len(engine.gpus) < need:
            yield (
                f"engine.gpus: found {len(engine.gpus)}, but {engine.replicas} replicas of tp {engine.tp} need {need}. "
                "List more, or lower engine.replicas or engine.tp"
            )
    if engine.kind in (EngineKind.LOCAL, EngineKind.CONTAINER):
        a_replica = -(-config.generation.concurrency // engine.replicas)
        yield from (f"engine.args: {fault}" for fault in flag_faults(engine.args, requests_per_replica=a_replica))
    yield from _environment(engine)


def _command(engine: EngineConfig) -> Iterator[str]:
    if engine.kind is EngineKind.LOCAL and engine.python and engine.command:
        yield "engine.command: stands beside engine.python. Keep one of them"
    if engine.command is not None and not engine.command:
        yield "engine.command: found an empty list. Write the program and its arguments, or leave it out"
    if starts_container(engine.command or []):
        yield (
            f"engine.command: found {shown('command', engine.command)}: Headway could neither prove that the container is "
            'its own nor stop it. Use engine.kind = "container" with engine.image (and engine.docker_args for further options)'
        )
    for i, arg in enumerate(engine.docker_args):
        name = arg.partition("=")[0]
        if name in OWN_DOCKER_FLAGS:
            yield f"engine.docker_args[{i}]: {name} is refused: Headway names, watches and removes the container. Leave it out"
        variable = arg.removeprefix("--env=").removeprefix("-e").strip()
        given = engine.docker_args[i - 1] if i else ""
        secret, equals, _ = variable.partition("=")
        if (given in ("-e", "--env") or variable != arg) and equals and SECRET_NAME.search(secret):
            yield (
                f"engine.docker_args[{i}]: {secret} looks like a secret and would be seen in `ps`. "
                f'Export it and write env_from = ["{secret}"]'
            )


def starts_container(command: list[str]) -> bool:
    """Whether a command is `docker run` or the like, with sudo before it or not."""
    words = [PurePath(word).name for word in command if not word.startswith("-")]
    if words[:1] == ["sudo"]:
        words = words[1:]
    return bool(words) and words[0] in CONTAINER_PROGRAMS


def _environment(engine: EngineConfig) -> Iterator[str]:
    for name in engine.env:
        key = f"engine.env.{quoted_key(name)}"
        if not _VARIABLE.fullmatch(name):
            yield f"{key}: is no name of an environment variable (letters, digits, underscores)"
        elif SECRET_NAME.search(name):
            yield f'{key}: looks like a secret, which may not stand in a file. Export it and write env_from = ["{name}"]'
        elif name == "PROMETHEUS_MULTIPROC_DIR":
            yield f"{key}: is refused: the server's counters would outlive its restart. Leave it out"
        elif name == "CUDA_VISIBLE_DEVICES":
            yield f"{key}: is refused: Headway gives each replica its GPUs. Write engine.gpus"
        if name in engine.env_from:
            yield f"{key}: stands in engine.env_from as well. Keep one of them"
    for i, name in enumerate(engine.env_from):
        yield from _variable(f"engine.env_from[{i}]", name)
    yield from _variable("engine.api_key_env", engine.api_key_env)


def _requests(config: RunConfig) -> Iterator[str]:
    yield from _free_tables("generation", config.generation.extra_body, config.generation.chat_template_kwargs)
    for i, dataset in enumerate(config.datasets):
        own = dataset.generation
        yield from _free_tables(f"datasets[{i}].generation", own.extra_body, own.chat_template_kwargs)


def _free_tables(section: str, body: Mapping[str, Any], kwargs: Mapping[str, Any]) -> Iterator[str]:
    for name in body:
        key = f"{section}.extra_body.{quoted_key(name)}"
        if name in OWN_REQUEST_FIELDS:
            yield f"{key}: is refused: {OWN_REQUEST_FIELDS[name]}"
    yield from _json(f"{section}.extra_body", body)
    yield from _json(f"{section}.chat_template_kwargs", kwargs)


def _json(section: str, table: Mapping[str, Any]) -> Iterator[str]:
    """Dates, inf and nan are TOML and no JSON."""
    for name, value in table.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            yield f"{section}.{quoted_key(name)}: found {shown(name, value)}, must be what JSON knows (no dates, inf or nan)"


def _datasets(config: RunConfig) -> Iterator[str]:
    yield from _repeated(
        "datasets", [dataset.name for dataset in config.datasets], "Give each dataset a name of its own", "name"
    )
    for i, dataset in enumerate(config.datasets):
        if not dataset.paths or not all(path and "\0" not in path for path in dataset.paths):
            yield f'datasets[{i}].path: found {shown("path", dataset.path)}, must name a file or a pattern, as "data/*.jsonl"'


def _guards(config: RunConfig) -> Iterator[str]:
    for i, dataset in enumerate(config.datasets):
        guards, own = config.guards_for(dataset), dataset.guards
        lowest, highest = guards.min_mean_tokens, guards.max_mean_tokens
        if lowest is not None and highest is not None and lowest >= highest:
            own_key = own.min_mean_tokens is not None or own.max_mean_tokens is not None
            key = f"datasets[{i}].guards.min_mean_tokens" if own_key else "guards.min_mean_tokens"
            yield f"{key}: found {lowest:g}, must be below max_mean_tokens, which is {highest:g}"
            if not own_key:
                return  # the same for every dataset


def _apis(config: RunConfig) -> Iterator[str]:
    for name, api in config.api.items():
        section = f"api.{quoted_key(name)}"
        if name in TAKEN_SOURCES:
            yield f"{section}: the name is taken: `{name}` is {TAKEN_SOURCES[name]}. Choose another one"
        yield from _url(f"{section}.base_url", api.base_url)
        yield from _variable(f"{section}.api_key_env", api.api_key_env)
        if api.api_key_env is not None and api.api_key_file is not None:
            yield f"{section}.api_key_file: stands beside api_key_env. Keep one of them"
        if api.api_key_file is not None and _looks_like_a_key(api.api_key_file):
            yield f"{section}.api_key_file: looks like a key itself, must be the path of a file that holds it"
        for key, field, value in _fields(f"{section}.extra_body", api.extra_body):
            if SECRET_NAME.search(field) and isinstance(value, str):
                yield (f"{key}: looks like a secret, which may not stand in a file. Use api_key_env or api_key_file")
        for field, remedy in OWN_API_FIELDS.items():
            if field in api.extra_body:
                yield f"{section}.extra_body.{field}: is refused: {remedy}"
        yield from _json(f"{section}.extra_body", api.extra_body)


def _fields(section: str, table: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Every field of a table and of the tables within: where it stands, its name, its value."""
    for name, value in table.items():
        key = f"{section}.{quoted_key(name)}"
        yield key, name, value
        if isinstance(value, dict):
            yield from _fields(key, value)


def _variable(key: str, name: str | None) -> Iterator[str]:
    if name is not None and (not _VARIABLE.fullmatch(name) or _looks_like_a_key(name)):
        yield f'{key}: must be the name of an environment variable, as "HF_TOKEN"; what stands there (not shown) is none'


def _looks_like_a_key(text: str) -> bool:
    return re.match(r"(sk|hf|gsk|key|pk|xai)[-_](?=.*[a-z0-9])[A-Za-z0-9_-]{16,}$", text) is not None and "/" not in text


def _url(key: str, url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        port_is_good = parts.port is None or parts.port > 0
    except ValueError:
        yield f"{key}: found {shown('url', url)}, must be an address as http://host:30000"
        return
    if parts.username is not None or parts.password is not None:
        yield f"{key}: holds a user name or password (not shown), which may not stand in a file. Use api_key_env"
    elif parts.scheme not in ("http", "https") or not parts.hostname or not port_is_good or re.search(r"\s", url):
        yield f"{key}: found {shown('url', url)}, must be an address as http://host:30000"
    elif parts.query or parts.fragment:
        yield f"{key}: found {shown('url', url)}, must end with its path (nothing after ? or #)"


def _repeated(key: str, values: list[str], remedy: str, field: str = "") -> Iterator[str]:
    for value, count in Counter(values).items():
        if count > 1:
            places = [i for i, other in enumerate(values) if other == value]
            where = f"{key}[{places[1]}]{'.' if field else ''}{field}"
            yield f'{where}: found "{value}", which stands in {key}[{places[0]}] already. {remedy}'
