"""Rows of finished samples for tests."""

from __future__ import annotations

from typing import Any

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
