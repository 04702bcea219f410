"""The text of a streamed chat completion, put together from server-sent events as they come.

Frames are parsed many at a time: a stream of single tokens would else cost a JSON object each. Only those up to the first text
are looked at at once, because they name the model and tell when it began. Pure: bytes in, an answer out; the wire is
`api_driver.py`'s.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from backend.job.api_bill import ApiUsage
from backend.records import Json

PARSE_AT_BYTES: Final = 16 << 10
DONE: Final = b"[DONE]"


class StreamError(Exception):
    """The API reports an error within a stream; `code` is the HTTP status that it would have been, None if it names none."""

    def __init__(self, words: str, code: int | None) -> None:
        super().__init__(words)
        self.code = code


@dataclass(slots=True)
class ApiStream:
    """One answer as far as it has come. Fields are up to date once `finish` or the parse of a batch has run."""

    id: str | None = None
    model: str | None = None
    provider: str | None = None
    finish_reason: str | None = None
    usage: ApiUsage = field(default_factory=ApiUsage)
    done: bool = False
    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tool_calls: dict[int, Json] = field(default_factory=dict)
    begun: bool = False  # a frame was parsed
    _waiting: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> bool:
        """Bytes as they come. Returns whether they hold more than keep-alive comments. Raises StreamError."""
        self._waiting += data
        moves = b"data:" in data or not data.lstrip().startswith(b":")
        self.done = self.done or DONE in self._waiting[-64:]
        if not self.has_text or len(self._waiting) >= PARSE_AT_BYTES:
            self._parse(self._waiting.rfind(b"\n") + 1)
        return moves

    def finish(self) -> None:
        """Parses what waits; what stands behind the last line break is a line as well."""
        self._parse(len(self._waiting))

    @property
    def has_text(self) -> bool:
        """Whether anything of the answer is there, not its frame alone."""
        return bool(self.content or self.reasoning or self.tool_calls)

    @property
    def characters(self) -> int:
        """Length of all text that was parsed, tool calls' arguments included."""
        texts = [*self.content, *self.reasoning, *(str(c["function"].get("arguments")) for c in self.tool_calls.values())]
        return sum(map(len, texts))

    def _parse(self, end: int) -> None:
        lines, self._waiting = bytes(self._waiting[:end]), self._waiting[end:]
        for line in lines.split(b"\n"):
            if line.startswith(b"data:"):
                payload = line[5:].strip()
                if payload == DONE:
                    self.done = True
                elif payload:
                    self.take(_load(payload))

    def take(self, frame: Any) -> None:
        """One frame, or a whole answer where the API does not stream. Raises StreamError."""
        if not isinstance(frame, dict):
            return
        self.begun = True
        if error := frame.get("error"):
            raise _error(error)
        self.id = self.id or _text(frame.get("id"))
        self.model = self.model or _text(frame.get("model"))
        self.provider = self.provider or _text(frame.get("provider"))
        usage = frame.get("usage")
        if isinstance(usage, dict):
            self.usage = read_usage(usage)
        choices = frame.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        delta = choice.get("delta") or choice.get("message")
        if isinstance(delta, dict):
            self._take_delta(delta)
        if reason := _text(choice.get("finish_reason")):
            self.finish_reason = reason

    def _take_delta(self, delta: Json) -> None:
        if content := _text(delta.get("content")):
            self.content.append(content)
        if reasoning := _text(delta.get("reasoning_content")) or _text(delta.get("reasoning")):
            self.reasoning.append(reasoning)
        calls = delta.get("tool_calls")
        for position, call in enumerate(calls if isinstance(calls, list) else ()):
            if isinstance(call, dict):
                self._take_call(call, position)

    def _take_call(self, call: Json, position: int) -> None:
        """Calls come in pieces: the first has id and name, the others go on with the arguments."""
        index = call.get("index")
        piece = call.get("function")
        piece = piece if isinstance(piece, dict) else {}
        function: Json = {"name": None, "arguments": ""}
        known = self.tool_calls.setdefault(
            index if isinstance(index, int) else position, {"id": None, "type": "function", "function": function}
        )
        known["id"] = known["id"] or call.get("id")
        known["function"]["name"] = known["function"]["name"] or piece.get("name")
        known["function"]["arguments"] += _text(piece.get("arguments")) or ""


def read_usage(usage: Json) -> ApiUsage:
    """The usage block of OpenAI, OpenRouter, vLLM and SGLang. Reasoning tokens are part of the completion tokens."""
    prompt, completion = _table(usage, "prompt_tokens_details"), _table(usage, "completion_tokens_details")
    cost = _number(usage.get("cost"))
    if cost is not None and usage.get("is_byok") is True:
        # with a key of one's own at the provider, `cost` is the router's fee alone
        cost += _number(_table(usage, "cost_details").get("upstream_inference_cost")) or 0.0
    return ApiUsage(
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
        reasoning_tokens=_count(completion.get("reasoning_tokens", usage.get("reasoning_tokens"))),
        cached_tokens=_count(prompt.get("cached_tokens", usage.get("prompt_cache_hit_tokens"))),
        cost_usd=cost,
    )


def _error(error: Any) -> StreamError:
    if not isinstance(error, dict):
        return StreamError(str(error)[:2000], None)
    code = error.get("code")
    return StreamError(str(error.get("message") or error)[:2000], code if isinstance(code, int) else None)


def _load(payload: bytes) -> Any:
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        try:
            return json.loads(payload)  # lone surrogates: orjson refuses them, a model can make them
        except ValueError:
            return None  # the torn end of a broken stream


def _table(usage: Json, key: str) -> Json:
    value = usage.get(key)
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _number(value: Any) -> float | None:
    return (
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf") else None
    )
