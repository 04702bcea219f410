"""Rows of finished samples for tests."""

from __future__ import annotations

from typing import Any, Final

from backend.records import Facts, Row

BASE_AT = 1_700_000_000.123457


def make_row(number: int = 0, **changes: Any) -> Row:
    """A plain sample of dataset B1; `changes` replace fields."""
    values: dict[str, Any] = {
        "dataset": "B1",
        "sample_id": f"s{number:06d}",
        "position": number,
        "turn": 0,
        "attempt": 1,
        "source": "local",
        "model": "m",
        "messages": '{"messages":[{"role":"user","content":"2+2?"}]}',
        "prompt_token_ids": (1, 2, 3),
        "prompt_tokens": 3,
        "raw_text": f"four {number}",
        "reasoning": None,
        "answer": f"four {number}",
        "tool_calls": None,
        "output_ids": (5, 6, 7, 8),
        "completion_tokens": 4,
        "reasoning_tokens": None,
        "cached_tokens": 0,
        "finish_reason": "stop",
        "facts": Facts(answer_tokens=4, simhash=-(2**63)),
        "started_at": BASE_AT + number,
        "first_token_at": None,
        "finished_at": BASE_AT + number + 1,
        "server_epoch": "0:1",
        "cost_usd": None,
        "error": None,
    }
    return Row(**(values | changes))


STRANGE_ROWS: Final = {
    "plain": make_row(),
    "lone surrogates": make_row(sample_id="a\ud835b", raw_text="x\udc00y", answer="\ud800", messages='{"messages":["\udfff"]}'),
    "line separators": make_row(raw_text="a\u2028b\u2029c\x85d\r\ne\x0bf", answer="\u2028"),
    "NUL": make_row(raw_text="a\0b\0", answer="\0", sample_id="id\0id"),
    "beyond the basic plane": make_row(raw_text="𝔘🏳️‍🌈", answer="\U0010ffff"),
    "6 MB": make_row(raw_text="é" * 3_000_000, answer="x" * 6_000_000, output_ids=tuple(range(100_000))),
    "ids beyond 2^63": make_row(sample_id=str(2**63 + 12345)),
    "numbers as text stay text": make_row(sample_id="007", answer="1e5", raw_text="0x10"),
    "everything missing": make_row(
        prompt_token_ids=None, prompt_tokens=None, raw_text=None, answer=None, output_ids=None, cached_tokens=None,
        facts=Facts(), server_epoch=None, finish_reason="rejected", error="HTTP 400: too long", completion_tokens=0,
    ),
    "empty is not missing": make_row(raw_text="", answer="", reasoning="", output_ids=(), prompt_token_ids=(), tool_calls=""),
    "everything there": make_row(
        reasoning="hm", tool_calls='[{"id":"1"}]', reasoning_tokens=1, first_token_at=BASE_AT + 0.5, cost_usd=0.1,
        tokens_estimated=True, facts=Facts(1, False, 7, 0.3333333333333333, 2**63 - 1),
    ),
}  # fmt: skip
