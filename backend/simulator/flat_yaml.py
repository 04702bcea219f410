"""The small part of YAML that a `--config` file of flags needs: `key: value` lines, lists, quotes, comments."""

from __future__ import annotations

import json

Scalar = str | int | float | bool | None
Value = Scalar | list[Scalar]


def parse_flat_yaml(text: str, path: str) -> dict[str, Value]:
    """Flags by name. Raises ValueError naming file, line and what was found."""
    values: dict[str, Value] = {}
    open_list: list[Scalar] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        stripped = _without_comment(line).strip()
        if not stripped or stripped == "---":
            continue
        if stripped.startswith("- "):
            if open_list is None:
                raise ValueError(f"{path}: line {number}: a list item without a key above it: {stripped!r}")
            open_list.append(_scalar(stripped[2:].strip()))
            continue
        key, colon, rest = stripped.partition(":")
        if not colon or line[:1].isspace():
            raise ValueError(f"{path}: line {number}: expected `flag-name: value`, found {stripped!r}")
        rest, key = rest.strip(), _unquoted(key.strip())
        open_list = None
        if not rest:
            open_list = []
            values[key] = open_list
        elif rest.startswith("[") and rest.endswith("]"):
            values[key] = [_scalar(part.strip()) for part in rest[1:-1].split(",") if part.strip()]
        else:
            values[key] = _scalar(rest)
    return values


def _without_comment(line: str) -> str:
    quote = ""
    for place, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter == "#" and (place == 0 or line[place - 1].isspace()):
            return line[:place]
    return line


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _scalar(text: str) -> Scalar:
    if len(text) > 1 and text[0] == text[-1] == '"':
        return str(json.loads(text))
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    if text in ("null", "~"):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
