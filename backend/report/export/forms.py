"""PURE: a finished sample in the form that a trainer reads. What a form cannot hold is a reason in words.

`conversations` is what SpecForge (data_preparation.md: `id`, `conversations` of role and content, `reasoning_content` on the
answer, `tools` as JSON text; further columns would reach the chat template) and speculators (preprocessing.py:
`conversations`, `reasoning_content`, `tool_calls`, `tools` as JSON text) read. `token_ids` is what both take as tokenized
already: `input_ids` and a `loss_mask` that is 1 for what the model made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from backend.outcomes import RULE_COLUMNS
from backend.records import Json
from backend.report.export.options import Format

if TYPE_CHECKING:
    import pyarrow as pa

KEY_COLUMNS: Final = ("dataset", "sample_id", "turn", "attempt")
COUNTED_COLUMNS: Final = (*KEY_COLUMNS, "source", "model", "completion_tokens", "messages", *RULE_COLUMNS)
CHAT_COLUMNS: Final = ("answer", "reasoning", "tool_calls")
ID_COLUMNS: Final = ("prompt_token_ids", "output_ids")
_SHAREGPT_NAMES: Final = {"user": "human", "assistant": "gpt", "function": "tool"}

Record = Mapping[str, Any]


class UnfitError(Exception):
    """A sample that the form cannot hold; the message is the reason, the same words for all of a kind."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A row's `messages`, read."""

    messages: list[Json]
    tools: list[Json] | None


def columns_for(form: Format) -> tuple[str, ...]:
    """The columns of a row that are read for a form."""
    own = ID_COLUMNS if form in (Format.TEXT, Format.TOKEN_IDS) else CHAT_COLUMNS
    return tuple(dict.fromkeys((*COUNTED_COLUMNS, *own)))


def read_asked(text: str) -> Asked:
    """The prompt of a row. Raises UnfitError."""
    unread = "the prompt cannot be read"
    asked = _loads(text, unread)
    messages = asked.get("messages") if isinstance(asked, dict) else None
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise UnfitError(unread)
    return Asked(messages, asked.get("tools") or None)


def conversation(record: Record, asked: Asked) -> list[Json]:
    """The messages that were sent and the answer, in the one shape that every row has. Raises UnfitError."""
    answer: Json = {"role": "assistant", "content": record["answer"] or ""}
    if record["reasoning"]:
        answer["reasoning_content"] = record["reasoning"]
    if record["tool_calls"]:
        answer["tool_calls"] = _loads(record["tool_calls"], "the tool calls cannot be read")
    return [_message(message) for message in (*asked.messages, answer)]


def chat(form: Format, sample_id: str, messages: list[Json], tools: list[Json] | None) -> Json:
    """A sample in one of the three forms made of messages. Rows without tools have no such field."""
    field = "messages" if form is Format.MESSAGES else "conversations"
    turns = [_sharegpt(message) for message in messages] if form is Format.SHAREGPT else messages
    row: Json = {"id": sample_id, field: turns}
    if tools:
        # text, because a column cannot hold functions whose parameters all differ
        row["tools"] = orjson.dumps(tools).decode()
    return row


def token_ids(record: Record) -> Json:
    """Ids of prompt and completion, and which of them were made. Raises UnfitError where the row has none."""
    prompt, made = record["prompt_token_ids"], record["output_ids"]
    if prompt is None or made is None or not len(made):
        raise UnfitError("no token ids: an API or another script made it")
    mask = np.zeros(len(prompt) + len(made), dtype=np.int8)
    mask[len(prompt) :] = 1
    return {"input_ids": np.concatenate([prompt, made]).astype(np.int32, copy=False), "loss_mask": mask}


def sampled_from(asked: Asked, *, every_turn: bool) -> bytes:
    """What makes two samples answers to the same prompt, for the split: all that was sent, tools included. Of a conversation
    whose every turn is made (`every_turn`) only what came before its first answer, so that its turns stay together.
    """
    messages = asked.messages
    if every_turn:
        users = [i for i, message in enumerate(messages) if message.get("role") == "user"]
        after_first = range(users[0] if users else 0, len(messages))
        end = next((i for i in after_first if messages[i].get("role") == "assistant"), len(messages))
        messages = messages[:end]
    return orjson.dumps([messages, asked.tools], option=orjson.OPT_SORT_KEYS)


def schema(form: Format) -> pa.Schema:
    """The columns of a Parquet file of a form."""
    import pyarrow as pa

    text = pa.string()
    if form in (Format.TEXT, Format.TOKEN_IDS):
        named = [("id", text), ("dataset", text), ("outcome", text)]
        if form is Format.TEXT:
            return pa.schema([*named, ("text", text)])
        return pa.schema([*named, ("input_ids", pa.list_(pa.int32())), ("loss_mask", pa.list_(pa.int8()))])
    call = pa.struct([("id", text), ("type", text), ("function", pa.struct([("name", text), ("arguments", text)]))])
    sharegpt = form is Format.SHAREGPT
    said = [("from", text), ("value", text)] if sharegpt else [("role", text), ("content", text)]
    more = [("reasoning_content", text), ("tool_calls", pa.list_(call)), ("tool_call_id", text), ("name", text)]
    field = "messages" if form is Format.MESSAGES else "conversations"
    return pa.schema([("id", text), (field, pa.list_(pa.struct([*said, *more]))), ("tools", text)])


def traits(row: Json) -> frozenset[str]:
    """Which fields that not every row has this one has: a reader that guesses columns from the first rows must see each."""
    found = {"tools"} if "tools" in row else set()
    for message in row.get("messages") or row.get("conversations") or ():
        found |= message.keys()
    return frozenset(found)


def _loads(text: str, otherwise: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise UnfitError(otherwise) from None


def _message(message: Json) -> Json:
    kept: Json = {"role": str(message.get("role")), "content": _text(message.get("content"))}
    for name in ("reasoning_content", "tool_call_id", "name"):
        if isinstance(message.get(name), str):
            kept[name] = message[name]
    calls = message.get("tool_calls")
    if isinstance(calls, Sequence) and not isinstance(calls, str) and calls:
        kept["tool_calls"] = [_call(call) for call in calls]
    return kept


def _text(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        return "".join(str(part.get("text", "")) for part in content)
    raise UnfitError("the prompt holds more than text, such as pictures")


def _call(call: object) -> Json:
    call = call if isinstance(call, dict) else {}
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
    named = {"name": str(function.get("name", "")), "arguments": arguments}
    return {"id": str(call.get("id") or ""), "type": str(call.get("type") or "function"), "function": named}


def _sharegpt(message: Json) -> Json:
    rest = {name: value for name, value in message.items() if name not in ("role", "content")}
    return {"from": _SHAREGPT_NAMES.get(message["role"], message["role"]), "value": message["content"], **rest}
