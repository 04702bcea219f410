"""PURE: the fields of the form for a new run ⇄ the tables of its TOML. What the form does not show is kept as it was."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, TypeGuard

from backend.config import RunConfig
from backend.config.sglang_flags import split_flags
from backend.control.draft import merged, words_of
from backend.records import Json


class EngineChoice(StrEnum):
    """What makes the tokens, as the form asks for it."""

    LOCAL = "local"
    CONTAINER = "container"
    ATTACHED = "attached"
    CPU = "cpu"  # a local engine with the settings of the CPU engine
    SIMULATED = "simulated"


class Thinking(StrEnum):
    """Whether the chat template is asked to let the model think."""

    UNSAID = "as the model does"
    ON = "on"
    OFF = "off"


START: Final[Json] = {
    "name": "", "model": "", "served_name": "", "engine": EngineChoice.LOCAL, "python": "", "image": "", "docker_args": "",
    "urls": "", "api_key_env": "", "gpus": "", "replicas": 1, "tp": 1, "args": "", "env_from": "", "speed": 10.0, "curve": "",
    "concurrency": 64, "max_new_tokens": None, "temperature": None, "top_p": None, "top_k": None, "thinking": Thinking.UNSAID,
}  # fmt: skip
EMPTY_ROW: Final[Json] = {
    "name": "", "path": "", "token_budget": None, "max_samples": None, "system_prompt": "", "turns": "last",
}  # fmt: skip
_OF_OTHER_KINDS: Final = (
    "python", "command", "image", "docker", "docker_args", "urls", "api_key_env", "gpus", "replicas", "tp", "args", "env",
    "env_from", "port",
)  # fmt: skip


def to_data(
    form: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], rest: Mapping[str, Any], cpu: Mapping[str, Any]
) -> Json:
    """TOML's tables. `rest` is what the form began with, `cpu` the sections of the CPU engine. Raises ConfigError."""
    choice = EngineChoice(form["engine"])
    data = merged(
        rest,
        {
            "name": form["name"].strip(),
            "model": {"path": form["model"].strip(), "served_name": _or_none(form["served_name"])},
            "engine": {**_cleared(rest, choice), **_engine(form, choice)},
            "generation": {
                "concurrency": form["concurrency"],
                **{key: form[key] for key in ("max_new_tokens", "temperature", "top_p", "top_k")},
                "chat_template_kwargs": {"enable_thinking": _thinking(form["thinking"])},
            },
        },
    )
    if choice is EngineChoice.CPU:
        data = merged(data, {name: dict(section) for name, section in cpu.items()})
        data["engine"]["args"] = [*cpu["engine"]["args"], *words_of(form["args"], "engine.args")]
    former = [d for d in rest.get("datasets", []) if isinstance(d, dict)]
    data.pop("datasets", None)
    data["datasets"] = [_dataset(row, former) for row in rows]
    data["engine"] = {"kind": data["engine"].pop("kind")} | data["engine"]
    return {name: data[name] for name in (*(n for n in RunConfig.model_fields if n in data), *data)}


def from_data(data: Mapping[str, Any]) -> tuple[Json, list[Json]]:
    """The form's fields and its rows of datasets, of TOML's tables; what cannot stand in a field is left to the TOML."""
    model, engine, generation = (_section(data, name) for name in ("model", "engine", "generation"))
    args = [str(arg) for arg in _list(engine.get("args"))]
    kind = str(engine.get("kind", EngineChoice.LOCAL))
    form = START | {
        "name": str(data.get("name", "")),
        "model": str(model.get("path", "")),
        "served_name": str(model.get("served_name") or ""),
        "engine": EngineChoice(kind) if kind in tuple(EngineChoice) else EngineChoice.LOCAL,
        "docker_args": shlex.join(map(str, _list(engine.get("docker_args")))),
        "urls": ", ".join(map(str, _list(engine.get("urls")))),
        "gpus": ", ".join(map(str, _list(engine.get("gpus")))),
        "env_from": ", ".join(map(str, _list(engine.get("env_from")))),
        "thinking": _told_thinking(_section(generation, "chat_template_kwargs").get("enable_thinking")),
    }
    for key in ("python", "image", "api_key_env"):
        form[key] = str(engine.get(key) or "")
    for key in ("replicas", "tp"):
        form[key] = engine.get(key) if _is_count(engine.get(key)) else START[key]
    form["concurrency"] = generation.get("concurrency") if _is_count(generation.get("concurrency")) else START["concurrency"]
    for key in ("max_new_tokens", "top_k"):
        form[key] = generation[key] if _is_whole(generation.get(key)) else None
    for key in ("temperature", "top_p"):
        value = generation.get(key)
        form[key] = float(value) if isinstance(value, float) or _is_whole(value) else None
    if form["engine"] is EngineChoice.SIMULATED:
        args = _take_simulated(args, form)
    form["args"] = shlex.join(args)
    rows = [_row(dataset) for dataset in _list(data.get("datasets")) if isinstance(dataset, dict)]
    return form, rows


def _engine(form: Mapping[str, Any], choice: EngineChoice) -> Json:
    kind = EngineChoice.LOCAL if choice is EngineChoice.CPU else choice
    if kind is EngineChoice.ATTACHED:
        return {"kind": kind.value, "urls": _words(form["urls"]), "api_key_env": _or_none(form["api_key_env"])}
    args = words_of(form["args"], "engine.args")
    if kind is EngineChoice.SIMULATED:
        args += ["--speed", f"{form['speed']:g}"] if form["speed"] else []
        args += ["--curve", form["curve"].strip()] if form["curve"].strip() else []
    engine: Json = {
        "kind": kind.value,
        "gpus": [int(word) if word.isdecimal() else word for word in _words(form["gpus"])] or None,
        "replicas": form["replicas"],
        "tp": form["tp"],
        "args": args or None,
        "env_from": _words(form["env_from"]) or None,
    }
    if kind is EngineChoice.LOCAL:
        engine["python"] = _or_none(form["python"])
    if kind is EngineChoice.CONTAINER:
        engine["image"] = _or_none(form["image"])
        engine["docker_args"] = words_of(form["docker_args"], "engine.docker_args") or None
    return engine


def _cleared(rest: Mapping[str, Any], choice: EngineChoice) -> Json:
    """Keys that mean nothing for another kind go when the kind changes; otherwise what the form does not show stays."""
    same = _section(rest, "engine").get("kind") == choice
    return {} if same else dict.fromkeys(_OF_OTHER_KINDS)


def _dataset(row: Mapping[str, Any], former: Sequence[Mapping[str, Any]]) -> Json:
    paths = _words(row["path"], ", ")
    base = next((d for d in former if d.get("name") == row["name"]), {})
    fields = {
        "name": row["name"].strip(),
        "path": paths[0] if len(paths) == 1 else paths or "",
        "token_budget": row["token_budget"],
        "max_samples": row["max_samples"],
        "system_prompt": row["system_prompt"] or None,
        "turns": None if row["turns"] == "last" else row["turns"],
    }
    return merged(base, fields)


def _row(dataset: Mapping[str, Any]) -> Json:
    path = dataset.get("path", "")
    row = EMPTY_ROW | {
        "name": str(dataset.get("name", "")),
        "path": ", ".join(map(str, path)) if isinstance(path, list) else str(path),
    }
    for key in ("token_budget", "max_samples"):
        row[key] = dataset.get(key) if _is_count(dataset.get(key)) else None
    row["system_prompt"] = str(dataset.get("system_prompt") or "")
    row["turns"] = "all" if dataset.get("turns") == "all" else "last"
    return row


def _take_simulated(args: Sequence[str], form: Json) -> list[str]:
    """Moves --speed and --curve into fields of their own; returns the others."""
    kept: list[str] = []
    for name, values in split_flags(args):
        if name == "--speed" and len(values) == 1 and values[0].replace(".", "", 1).isdigit():
            form["speed"] = float(values[0])
        elif name == "--curve" and len(values) == 1:
            form["curve"] = values[0]
        else:
            kept += [name, *values]
    if not any(name == "--speed" for name, _ in split_flags(args)):
        form["speed"] = None
    return kept


def _thinking(choice: str) -> bool | None:
    return {Thinking.ON: True, Thinking.OFF: False}.get(Thinking(choice))


def _told_thinking(value: object) -> Thinking:
    return Thinking.ON if value is True else Thinking.OFF if value is False else Thinking.UNSAID


def _words(text: str, separator: str = ",") -> list[str]:
    return [word.strip() for word in text.split(separator) if word.strip()]


def _or_none(text: str) -> str | None:
    return text.strip() or None


def _section(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = data.get(name)
    return section if isinstance(section, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return _is_whole(value) and value >= 1
