"""PURE: one record that another script wrote, to the answers it holds. Which prompt they answer is told by `matching.py`.

Understood: lines of OpenAI's batch output, whole chat or text completions, a prompt with a response in fields of their own, and
conversations (OpenAI or ShareGPT) that end with the answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from backend.prompts.forms import PROMPT_FIELDS, SHAREGPT_ROLES, FormError, conversation, shortened
from backend.prompts.reader import ID_FIELDS, as_id
from backend.records import Json

ANSWER_FIELDS: Final = (
    "response", "completion", "output", "generated_text", "generation", "prediction", "model_output", "answer", "text",
)  # fmt: skip
REASONING_FIELDS: Final = ("reasoning_content", "reasoning", "thinking")
CONVERSATION_FIELDS: Final = ("messages", "conversations")
ERROR_WORDS: Final = 300  # characters of an error

# The words of several servers for the same end, in ours.
FINISH_REASONS: Final = {
    "stop": "stop", "eos": "stop", "eos_token": "stop", "end_turn": "stop", "stop_sequence": "stop", "length": "length",
    "max_tokens": "length", "max_length": "length", "tool_calls": "tool_calls", "tool_use": "tool_calls",
    "function_call": "tool_calls",
}  # fmt: skip
ENDED_BADLY: Final = frozenset({"abort", "aborted", "error", "content_filter", "cancelled"})


class Flaw(StrEnum):
    """Why a line holds no answer to keep."""

    BROKEN = "broken"  # no JSON, or of no known form
    ERROR = "error"  # it tells that the request failed
    EMPTY = "empty"  # nothing after the reasoning


class OutputError(Exception):
    """A record that holds no answer."""

    def __init__(self, flaw: Flaw, words: str) -> None:
        super().__init__(words)
        self.flaw = flaw


@dataclass(frozen=True, slots=True)
class Fields:
    """Where a record's parts are, where its script had names of its own. None: found by their usual names."""

    sample_id: str | None = None
    prompt: str | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Spoken:
    """An assistant turn, and the messages before it (None where the record does not tell them)."""

    asked: tuple[Json, ...] | None
    content: str
    reasoning: str | None = None  # where it stood apart
    tool_calls: tuple[Json, ...] | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """The answers of a record, in order; what else it tells is about the last one."""

    sample_id: str | None
    turns: tuple[Spoken, ...]
    finish_reason: str | None = None  # in our words; None where it is not told
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    reasoning_tokens: int | None = None
    model: str | None = None
    created_at: float | None = None  # epoch seconds


def read_output(record: Json, fields: Fields) -> Output:
    """Raises OutputError."""
    _refuse_error(record)
    sample_id = _sample_id(record, fields)
    body = _completion(record)
    if body is not None:
        return _from_completion(record, body, fields, sample_id)
    meta = _mapping(record.get("meta_info"))  # of SGLang's own /generate
    usage = _mapping(record.get("usage")) or meta
    return Output(
        sample_id,
        _turns(record, fields),
        _finish_reason(record.get("finish_reason") or record.get("stop_reason") or meta.get("finish_reason")),
        _count(usage.get("completion_tokens"), record.get("completion_tokens")),
        _count(usage.get("prompt_tokens"), record.get("prompt_tokens")),
        _reasoning_tokens(usage),
        _text(record.get("model")),
        _moment(record.get("created")),
    )


def _refuse_error(record: Json) -> None:
    error = record.get("error")
    response = _mapping(record.get("response"))
    status = response.get("status_code")
    if error:
        words = _mapping(error).get("message") or error
        raise OutputError(Flaw.ERROR, f"an error: {words if isinstance(words, str) else json.dumps(words)}"[:ERROR_WORDS])
    if record.get("status") in ("error", "failed", "failure"):
        raise OutputError(Flaw.ERROR, f"its status is {record['status']}")
    if isinstance(status, int) and status != 200:
        words = json.dumps(response.get("body"), ensure_ascii=False)
        raise OutputError(Flaw.ERROR, f"HTTP {status}: {words}"[:ERROR_WORDS])


def _sample_id(record: Json, fields: Fields) -> str | None:
    if fields.sample_id is not None:
        return as_id(record.get(fields.sample_id))
    # the `id` of a completion, or of a batch's line, is the server's and no sample's
    of_server = "choices" in record or "custom_id" in record
    names = ("custom_id", *(name for name in ID_FIELDS if not (of_server and name == "id")))
    return next((found for name in names if (found := as_id(record.get(name))) is not None), None)


def _completion(record: Json) -> Json | None:
    response = _mapping(record.get("response"))
    for body in (_mapping(response.get("body")), response, record):
        if isinstance(body.get("choices"), list):
            return body
    return None


def _from_completion(record: Json, body: Json, fields: Fields, sample_id: str | None) -> Output:
    choices = body["choices"]
    if len(choices) != 1:
        raise OutputError(Flaw.BROKEN, f"it holds {len(choices)} answers in place of one")
    choice = _mapping(choices[0])
    message = choice.get("message")
    if not isinstance(message, dict):
        message = {"content": choice.get("text")}
    asked = _asked(record, fields, without=("text",))
    usage = _mapping(body.get("usage"))
    return Output(
        sample_id,
        (_spoken(message, asked),),
        _finish_reason(choice.get("finish_reason")),
        _count(usage.get("completion_tokens")),
        _count(usage.get("prompt_tokens")),
        _reasoning_tokens(usage),
        _text(body.get("model")),
        _moment(body.get("created")),
    )


def _turns(record: Json, fields: Fields) -> tuple[Spoken, ...]:
    names = ANSWER_FIELDS if fields.answer is None else (fields.answer,)
    for name in names:
        value = record.get(name)
        if value is None:
            continue
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        message = value if isinstance(value, dict) else {"content": value}
        told = {key: record[key] for key in (*REASONING_FIELDS, "tool_calls") if record.get(key)}
        return (_spoken({**told, **message}, _asked(record, fields, without=(name,))),)
    if fields.answer is None:
        for name in CONVERSATION_FIELDS:
            if isinstance(record.get(name), list):
                return _of_conversation(record[name], record.get("system"), name)
    wanted = ", ".join((*names, *CONVERSATION_FIELDS)) if fields.answer is None else fields.answer
    raise OutputError(Flaw.BROKEN, f"no answer in it: none of {wanted}; there are {shortened(list(record))}")


def _of_conversation(turns: list[Any], system: object, name: str) -> tuple[Spoken, ...]:
    """Every assistant turn after the first question, with what stands before it."""
    messages = [_message(turn, f"{name}[{i}]") for i, turn in enumerate(turns)]
    if isinstance(system, str) and system.strip() and not any(m["role"] in ("system", "developer") for m in messages):
        messages.insert(0, {"role": "system", "content": system})
    if not messages or messages[-1]["role"] != "assistant":
        raise OutputError(Flaw.BROKEN, f"no answer in it: `{name}` does not end with an assistant turn")
    first = next((i for i, message in enumerate(messages) if message["role"] == "user"), len(messages))
    return tuple(
        _spoken(message, tuple(_sent(one) for one in messages[:i]))
        for i, message in enumerate(messages)
        if i > first and message["role"] == "assistant"
    ) or (_spoken(messages[-1], None),)


def _message(turn: object, where: str) -> Json:
    message = _mapping(turn)
    role = message.get("role")
    if role is None and isinstance(message.get("from"), str):
        role = SHAREGPT_ROLES.get(message["from"].strip().lower())
    if not isinstance(role, str):
        raise OutputError(Flaw.BROKEN, f"{where} has no role that is known, found {shortened(turn)}")
    rest = {key: value for key, value in message.items() if key not in ("from", "value") and value is not None}
    return {**rest, "role": role, "content": message.get("content", message.get("value"))}


def _sent(message: Json) -> Json:
    return {key: value for key, value in message.items() if key not in REASONING_FIELDS}


def _asked(record: Json, fields: Fields, without: tuple[str, ...]) -> tuple[Json, ...] | None:
    names = PROMPT_FIELDS if fields.prompt is None else (fields.prompt,)
    for name in names:
        if name in without or record.get(name) is None:
            continue
        try:
            return conversation(record, name, all_turns=False).messages
        except FormError as error:
            raise OutputError(Flaw.BROKEN, f"its prompt cannot be read: {error}") from None
    return None


def _spoken(message: Json, asked: tuple[Json, ...] | None) -> Spoken:
    content = message.get("content")
    if isinstance(content, list) and all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content):
        content = "".join(part["text"] for part in content)
    if content is not None and not isinstance(content, str):
        raise OutputError(Flaw.BROKEN, f"its answer must be text, found {shortened(content)}")
    reasoning = next((text for name in REASONING_FIELDS if (text := _text(message.get(name)))), None)
    calls = message.get("tool_calls")
    is_list = isinstance(calls, list) and bool(calls) and all(isinstance(call, dict) for call in calls)
    return Spoken(asked, content or "", reasoning, tuple(calls) if is_list and calls else None)


def _finish_reason(value: object) -> str | None:
    told = value.get("type") if isinstance(value, dict) else value
    if not isinstance(told, str):
        return None
    if told.lower() in ENDED_BADLY:
        raise OutputError(Flaw.ERROR, f"its request ended by {told}")
    return FINISH_REASONS.get(told.lower())


def _reasoning_tokens(usage: Mapping[str, Any]) -> int | None:
    return _count(_mapping(usage.get("completion_tokens_details")).get("reasoning_tokens"), usage.get("reasoning_tokens"))


def _count(*values: object) -> int | None:
    return next((v for v in values if isinstance(v, int) and not isinstance(v, bool) and v >= 0), None)


def _moment(value: object) -> float | None:
    """Epoch seconds, where it is a time at which there were such models."""
    return float(value) if isinstance(value, int | float) and 1.5e9 < value < 1e11 else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}
