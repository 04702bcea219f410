"""What is wrong with a configuration, in a user's words: key in TOML's spelling, what was found, what to do."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, ValidationError

SECRET_NAME: Final = re.compile(
    r"(^|[_-])(token|key|secret|password|passwd|credentials?)s?$|secret|password|api_?key", re.IGNORECASE
)
_UNION_TAGS: Final = frozenset({"str", "int", "list[str]"})  # pydantic's names for the branches of a union, no keys
_EXPECTED: Final = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text in quotes",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "finite_number": "a finite number",
    "datetime_type": "a time with its offset, without quotes, as 2026-12-03T12:00:00+01:00",
    "timezone_aware": "a time with its offset, as 2026-12-03T12:00:00+01:00",
    "string_pattern_mismatch": "1 to 64 letters, digits, dots, dashes or underscores, a letter or digit first",
}
_BOUNDS: Final = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}


class ConfigError(Exception):
    """A run's configuration cannot be used; the message has one line a fault."""


def fault_lines(error: ValidationError, data: dict[str, Any], model: type[BaseModel]) -> list[str]:
    """One line a key that is wrong: `key: found ..., must be ...`. `data` is what was validated as a `model`."""
    expected: dict[str, list[str]] = {}
    found: dict[str, object] = {}
    lines: dict[str, str] = {}
    for fault in error.errors(include_url=False):
        location, kind = fault["loc"], fault["type"]
        key = _toml_key(location, data)
        if kind == "extra_forbidden":
            lines[key] = f"{key}: {_unknown_key(location, model)}"
        elif kind == "missing":
            lines[key] = f"{key}: {_missing(location, model)}"
        else:
            lines.setdefault(key, "")  # keeps its place; two branches of a union make one line
            found[key] = fault["input"]
            expected.setdefault(key, []).append(_expectation(fault["type"], fault.get("ctx", {}), fault["msg"], fault["input"]))
    for key, wishes in expected.items():
        lines[key] = f"{key}: found {shown(key, found[key])}, must be {' or '.join(dict.fromkeys(wishes))}"
    return list(lines.values())


def shown(key: str, value: object, limit: int = 60) -> str:
    """A value for an error message, shortened; what may be a secret is left out."""
    if key.startswith("engine.env.") or SECRET_NAME.search(key.rpartition(".")[2]):
        return "a value (not shown)"
    text = str(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= limit else f"{text[:limit]}…"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`, did you mean ...?` where something known is near, else the list of what is known."""
    names = list(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f", did you mean `{near[0]}`?" if near else f"; known are {', '.join(names)}"


def quoted_key(part: str) -> str:
    """A key as TOML wants it."""
    return part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else json.dumps(part, ensure_ascii=False)


def _toml_key(location: tuple[int | str, ...], data: Any) -> str:
    text, here = "", data
    for element in location:
        if isinstance(element, int):
            if not isinstance(here, list):
                continue
            text += f"[{element}]"
            here = here[element] if element < len(here) else None
        elif element != "[key]" and not (element in _UNION_TAGS and not (isinstance(here, dict) and element in here)):
            text += f".{quoted_key(element)}" if text else quoted_key(element)
            here = here.get(element) if isinstance(here, dict) else None
    return text


def _expectation(kind: str, context: dict[str, Any], message: str, value: object) -> str:
    if kind == "enum":
        allowed = re.findall(r"'([^']*)'", context["expected"])
        near = difflib.get_close_matches(str(value), allowed, n=1)
        return " or ".join(allowed) + (f" (did you mean `{near[0]}`?)" if near else "")
    if kind in _BOUNDS:
        words, name = _BOUNDS[kind]
        return f"{words} {context[name]}"
    if kind == "too_short":
        return f"a list with at least {context['min_length']}"
    return _EXPECTED.get(kind, message)


def _missing(location: tuple[int | str, ...], model: type[BaseModel]) -> str:
    section = _model_at(model, location[:-1])
    field = section.model_fields.get(str(location[-1])) if section is not None else None
    what = _plain(field.annotation) if field is not None else None
    if location == ("datasets",):
        return "missing, write at least one [[datasets]] with name and path"
    if isinstance(what, type) and issubclass(what, BaseModel):
        needed = [name for name, inner in what.model_fields.items() if inner.is_required()]
        return f"the section [{location[-1]}] is missing, write it with {', '.join(needed)}"
    return "required and missing, write it"


def _unknown_key(location: tuple[int | str, ...], model: type[BaseModel]) -> str:
    word = str(location[-1])
    section = _model_at(model, location[:-1])
    names = list(section.model_fields) if section is not None else []
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.75)
    if not near:
        elsewhere = [place for place, known in _sections(model) if word in known.model_fields]
        if elsewhere:
            return f"unknown key here, it belongs in {' or '.join(elsewhere)}"
    return f"unknown key `{word}`{did_you_mean(word, (name for name in names if name != 'frozen'))}"


def _sections(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in model.model_fields.items():
        kind = _plain(field.annotation)
        if name != "frozen" and isinstance(kind, type) and issubclass(kind, BaseModel):
            yield f"[{name}]", kind
        elif get_origin(kind) in (list, dict):
            item = get_args(kind)[-1]
            if isinstance(item, type) and issubclass(item, BaseModel):
                yield (f"[[{name}]]" if get_origin(kind) is list else f"[{name}.NAME]"), item


def _model_at(model: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel] | None:
    here: Any = model
    for element in location:
        if get_origin(here) in (list, dict):
            here = get_args(here)[-1]
        elif isinstance(here, type) and issubclass(here, BaseModel) and element in here.model_fields:
            here = _plain(here.model_fields[str(element)].annotation)
        else:
            return None
    return here if isinstance(here, type) and issubclass(here, BaseModel) else None


def _plain(annotation: Any) -> Any:
    """Without `| None`."""
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    return kinds[0] if get_origin(annotation) not in (None, list, dict) and len(kinds) == 1 else annotation
