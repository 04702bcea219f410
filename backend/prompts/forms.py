"""PURE: a record of a prompt file to OpenAI messages.

Three forms: a text field, OpenAI `messages` (with `tools`), ShareGPT `conversations`. Which id a record gets is
told by `reader.py`, how a conversation goes on by `turns.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from backend.prompts.turns import after_assistant
from backend.records import Json

PROMPT_FIELDS: Final = ("messages", "conversations", "prompt", "question", "text")
CONVERSATION_FIELDS: Final = frozenset({"messages", "conversations"})  # here a string can only be packed JSON
ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
SHAREGPT_ROLES: Final = {
    "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant", "bard": "assistant",
    "bing": "assistant", "model": "assistant", "function_call": "assistant", "tool_call": "assistant", "system": "system",
    "developer": "developer", "tool": "tool", "observation": "tool", "tool_response": "tool", "function_response": "tool",
    "function": "tool",
}  # fmt: skip
INSTRUCTIONS: Final = frozenset({"system", "developer"})

_canonical_json = json.JSONEncoder(sort_keys=True, allow_nan=False, separators=(",", ":")).encode


class FormError(Exception):
    """A record holds no prompt that can be sent; the message is the reason a user reads."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a record asks for. `later` is empty unless every assistant turn is to be made."""

    messages: tuple[Json, ...]
    tools: tuple[Json, ...] | None = None
    later: tuple[Json, ...] = ()
    is_text: bool = False  # one text, known to be JSON


def canonical(asked: Conversation) -> str:
    """One spelling for equal prompts, to take a hash of. Raises FormError for NaN and for what JSON does not know."""
    try:
        tools = "null" if asked.tools is None else _canonical_json(asked.tools)
        return f"[{_canonical_messages(asked.messages)},{tools},{_canonical_messages(asked.later)}]"
    except (ValueError, TypeError, RecursionError) as error:
        raise FormError(f"the prompt is not JSON: {error}") from error


def _canonical_messages(messages: tuple[Json, ...]) -> str:
    # what json would write, in half of its time for messages of a role and a text
    return f"[{','.join([_canonical_text(m) if len(m) == 2 else _canonical_json(m) for m in messages])}]"


def _canonical_text(message: Json) -> str:
    content = message.get("content")
    if not isinstance(content, str):
        return _canonical_json(message)
    return f'{{"content":{_canonical_json(content)},"role":{_canonical_json(message["role"])}}}'


def plain_text(record: Mapping[str, Any], field: str | None) -> str | None:
    """The prompt of a record that is one text without tools, quickly; None for every other record."""
    if record.get("tools") is not None:
        return None
    for name in PROMPT_FIELDS if field is None else (field,):
        value = record.get(name)
        if value is not None:
            return (
                value if isinstance(value, str) and name not in CONVERSATION_FIELDS and value and not value.isspace() else None
            )
    return None


def prompt_value(record: Mapping[str, Any], field: str | None) -> tuple[str, Any]:
    """The name and value of the field that holds the prompt. Raises FormError."""
    if field is not None:
        value = record.get(field)
        if value is None:
            raise FormError(f"no field `{field}` (prompt_field); there are {shortened(list(record))}")
        return field, value
    for name in PROMPT_FIELDS:
        value = record.get(name)
        if value is not None:
            return name, value
    raise FormError(
        f"no prompt: none of {', '.join(PROMPT_FIELDS)} (name it with prompt_field); there are {shortened(list(record))}"
    )


def conversation(record: Mapping[str, Any], field: str | None, *, all_turns: bool) -> Conversation:
    """Reads a record in whichever form it is; trailing assistant turns are dropped. Raises FormError."""
    name, value = prompt_value(record, field)
    if isinstance(value, str) and name not in CONVERSATION_FIELDS:
        if not value or value.isspace():
            raise FormError(f"empty prompt in `{name}`")
        tools = record.get("tools")
        return Conversation(
            ({"role": "user", "content": value},), None if tools is None else _tools(tools), is_text=tools is None
        )
    turns = _unpacked(value, name)
    if not isinstance(turns, list):
        raise FormError(f"`{name}` must be text or a list of messages, found {shortened(value)}")
    if not turns:
        raise FormError(f"empty prompt: `{name}` has no messages")
    if isinstance(turns[0], dict) and "from" in turns[0] and "role" not in turns[0]:
        messages = _from_sharegpt(turns, name)
        system = record.get("system")
        if isinstance(system, str) and system.strip() and not has_instruction(messages):
            messages.insert(0, {"role": "system", "content": system})
    else:
        messages = [_checked_message(turn, name, i) for i, turn in enumerate(turns)]
    tools = record.get("tools")
    return _split(messages, None if tools is None else _tools(tools), all_turns=all_turns)


def has_instruction(messages: list[Json] | tuple[Json, ...]) -> bool:
    """Whether a system (or developer) message is among them."""
    return any(message["role"] in INSTRUCTIONS for message in messages)


def shortened(value: object, limit: int = 60) -> str:
    """A value for an error message."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"


def _split(messages: list[Json], tools: tuple[Json, ...] | None, *, all_turns: bool) -> Conversation:
    while messages and messages[-1]["role"] == "assistant":
        messages.pop()
    users = [i for i, message in enumerate(messages) if message["role"] == "user"]
    if not users:
        raise FormError("the conversation has no user turn")
    for i in users:
        if _has_content(messages[i].get("content")):
            break
    else:
        raise FormError("empty prompt: no user turn has any content")
    if all_turns:
        for i in range(users[0], len(messages)):
            if messages[i]["role"] == "assistant":
                return Conversation(tuple(messages[:i]), tools, tuple(after_assistant(messages[i:])))
    return Conversation(tuple(messages), tools)


def _has_content(content: object) -> bool:
    return not content.isspace() and content != "" if isinstance(content, str) else bool(content)


def _checked_message(turn: object, name: str, i: int) -> Json:
    if not isinstance(turn, dict):
        raise FormError(f"{name}[{i}] must be an object with role and content, found {shortened(turn)}")
    role, content = turn.get("role"), turn.get("content")
    if type(role) is type(content) is str and role in ROLES:
        return turn
    where = f"{name}[{i}]"
    if not isinstance(role, str) or role not in ROLES:
        raise FormError(f"{where}.role must be one of {', '.join(sorted(ROLES))}, found {shortened(role)}")
    if isinstance(content, list):
        if not all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in content):
            raise FormError(f"{where}.content is a list whose parts are not all objects with a type")
    elif content is None:
        if role != "assistant":
            raise FormError(f"{where} has no content")
    elif not isinstance(content, str):
        raise FormError(f"{where}.content must be text or a list of parts, found {shortened(content)}")
    return turn


def _from_sharegpt(turns: list[Any], name: str) -> list[Json]:
    messages: list[Json] = []
    for i, turn in enumerate(turns):
        if not isinstance(turn, dict):
            raise FormError(f"{name}[{i}] must be an object with from and value, found {shortened(turn)}")
        source, value = turn.get("from"), turn.get("value")
        role = SHAREGPT_ROLES.get(source.strip().lower()) if isinstance(source, str) else None
        if role is None:
            raise FormError(f"{name}[{i}].from must be human, gpt, system, tool or the like, found {shortened(source)}")
        if not isinstance(value, str):
            raise FormError(f"{name}[{i}].value must be text, found {shortened(value)}")
        messages.append({"role": role, "content": value})
    return messages


def _tools(value: object) -> tuple[Json, ...] | None:
    tools = _unpacked(value, "tools")
    if isinstance(tools, str) and not tools.strip():
        return None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise FormError(f"`tools` must be a list of objects, found {shortened(tools)}")
    # bare function descriptions, as ShareGPT sets carry them, in the form that the API wants
    wrapped = ({"type": "function", "function": tool} if "type" not in tool and "name" in tool else tool for tool in tools)
    return tuple(wrapped) or None


def _unpacked(value: object, name: str) -> object:
    """Parquet files often hold lists as JSON text."""
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise FormError(f"`{name}` is text that begins like a list and is not JSON ({error})") from error
