"""A streamed answer is put together exactly, however it is cut into pieces and whatever stands in it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backend.job.api_bill import ApiUsage
from backend.job.api_stream import PARSE_AT_BYTES, ApiStream, StreamError, read_usage


def frame(delta: Any = None, *, finish: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None and finish is None else [{"index": 0, "delta": delta or {}, "finish_reason": finish}]
    return b"data: " + json.dumps({"id": "gen-1", "model": "m", "choices": choices, **more}).encode() + b"\n\n"


USAGE = {
    "prompt_tokens": 20,
    "completion_tokens": 30,
    "prompt_tokens_details": {"cached_tokens": 16},
    "completion_tokens_details": {"reasoning_tokens": 25},
    "cost": 0.0125,
}
WHOLE = (
    frame({"role": "assistant", "content": ""}, provider="P")
    + b": OPENROUTER PROCESSING\n\n"
    + frame({"reasoning_content": "Let me sée. ", "content": None})
    + frame({"reasoning": "Yes."})
    + frame({"content": "fo\u2028ur"})
    + frame({"content": " \ud835"})
    + frame(finish="stop")
    + frame(usage=USAGE)
    + b"data: [DONE]\n\n"
)


@pytest.mark.parametrize("size", [1, 2, 7, 100, 10_000])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_pieces_of_any_size_make_the_same_answer(size: int, line_end: bytes) -> None:
    stream, data = ApiStream(), WHOLE.replace(b"\n", line_end)
    for start in range(0, len(data), size):
        stream.feed(data[start : start + size])
    assert stream.done
    stream.finish()
    assert ("".join(stream.reasoning), "".join(stream.content)) == ("Let me sée. Yes.", "fo\u2028ur \ud835")
    assert (stream.id, stream.model, stream.provider, stream.finish_reason) == ("gen-1", "m", "P", "stop")
    assert stream.usage == ApiUsage(20, 30, 25, 16, 0.0125)
    assert stream.characters == len("Let me sée. Yes.fo\u2028ur \ud835")


def test_the_model_is_known_from_the_first_frame() -> None:
    stream = ApiStream()
    stream.feed(frame({"role": "assistant"}))
    assert stream.begun
    assert (stream.model, stream.has_text) == ("m", False)


def test_only_batches_are_parsed_and_a_long_answer_is_held_as_text() -> None:
    stream = ApiStream()
    for _ in range(2_000):
        stream.feed(frame({"content": "word "}))
        assert len(stream._waiting) < PARSE_AT_BYTES + 200
    stream.finish()
    assert "".join(stream.content) == "word " * 2_000


def test_a_keep_alive_is_no_movement() -> None:
    stream = ApiStream()
    assert stream.feed(b": OPENROUTER PROCESSING\n\n") is False
    assert stream.feed(frame({"content": "a"})) is True


def test_a_torn_end_is_passed_over_and_a_last_line_without_a_break_is_read() -> None:
    stream = ApiStream()
    stream.feed(frame({"content": "all of it"}) + b'data: {"choices": [{"delta": {"conte')
    stream.finish()
    assert "".join(stream.content) == "all of it"
    stream.feed(frame(finish="length").rstrip(b"\n"))
    stream.finish()
    assert stream.finish_reason == "length"


def test_tool_calls_come_in_pieces() -> None:
    stream = ApiStream()
    for call in (
        {"index": 0, "id": "c0", "function": {"name": "add", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"a": 1,'}},
        {"index": 1, "id": "c1", "function": {"name": "sub", "arguments": "{}"}},
        {"index": 0, "function": {"arguments": ' "b": 2}'}},
    ):
        stream.feed(frame({"tool_calls": [call]}))
    stream.finish()
    functions = [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in stream.tool_calls.values()]
    assert functions == [("c0", "add", '{"a": 1, "b": 2}'), ("c1", "sub", "{}")]


def test_an_error_within_a_stream_is_told_with_its_code() -> None:
    with pytest.raises(StreamError, match="The provider went away") as caught:
        ApiStream().feed(b'data: {"error": {"code": 502, "message": "The provider went away."}, "choices": []}\n\n')
    assert caught.value.code == 502


@pytest.mark.parametrize("odd", [b"data: null\n\n", b"data: [1]\n\n", b"data: {}\n\n", b'data: {"choices": 5}\n\n',
                                 b'data: {"choices": [{"delta": {"content": 7, "tool_calls": [null]}}]}\n\n', b"\xff\xfe\n\n",
                                 b"event: ping\n\n", b'data: {"usage": [], "model": 3}\n\n'])  # fmt: skip
def test_odd_frames_do_no_harm(odd: bytes) -> None:
    stream = ApiStream()
    stream.feed(odd + frame({"content": "four"}))
    stream.finish()
    assert "".join(stream.content) == "four"
    assert stream.usage == ApiUsage()


def test_usage_that_is_no_number_is_unknown_and_a_key_of_ones_own_adds_the_providers_price() -> None:
    assert read_usage({"prompt_tokens": "5", "completion_tokens": -1, "cost": "x"}) == ApiUsage()
    assert read_usage({"cost": 0.001, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.02}}).cost_usd == 0.021
