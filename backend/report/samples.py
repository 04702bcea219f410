"""Finished samples with their texts, one at a time: from the ledger while they are open, else from the shards that may hold
them. Which samples there are is asked of `sample_finder.py`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from backend.heartbeat import has_table, reading
from backend.outcomes import outcome_of, split_reasoning
from backend.records import Outcome, Row
from backend.report.connection import connect, first_line, query_text
from backend.rows import row_from_record
from backend.run_dir import RunDir, RunDirError

CLOCK_SLACK_S: Final = 0.001  # times are kept to the microsecond; a manifest's are floats


@dataclass(frozen=True, slots=True)
class SampleLine:
    """A finished sample without its texts. Times are epoch seconds."""

    dataset: str
    position: int
    turn: int
    attempt: int
    outcome: Outcome
    finish_reason: str
    prompt_tokens: int | None
    completion_tokens: int
    started_at: float
    finished_at: float


@dataclass(frozen=True, slots=True)
class Said:
    """One message of a prompt: who speaks, and the text."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Sample:
    """A finished sample as a person reads it. Texts are the model's or anybody's: never to be shown as HTML or Markdown."""

    row: Row
    outcome: Outcome
    prompt: tuple[Said, ...]
    reasoning: str | None
    answer: str
    reasoning_tokens: int | None  # as the server says, else by what the answer leaves of the completion


def read_sample(run: RunDir, line: SampleLine) -> Sample | None:
    """The whole sample; None where it is in no place any more. Raises RunDirError where its shard cannot be read."""
    record = _open_record(run, line) or _sealed_record(run, line)
    if record is None:
        return None
    row = row_from_record(record)
    reasoning, answer = row.reasoning, row.answer
    if reasoning is None and answer is None:
        parts = split_reasoning(row.raw_text or "")
        reasoning, answer = parts.reasoning, parts.answer
    tokens = row.reasoning_tokens
    if reasoning and not tokens and row.facts.answer_tokens is not None:
        tokens = row.completion_tokens - row.facts.answer_tokens
    return Sample(row, outcome_of(row), messages_said(row.messages), reasoning, answer or "", tokens)


def messages_said(messages: str) -> tuple[Said, ...]:
    """The prompt of a row (JSON), message by message, the tools it offers first. What is no such JSON is one text."""
    try:
        prompt = json.loads(messages)
        said = [Said(str(message.get("role")), _text_of(message)) for message in prompt["messages"]]
        tools = prompt.get("tools")
    except (ValueError, KeyError, TypeError, AttributeError):
        return (Said("prompt", messages),)
    offered = [Said("tools", json.dumps(tools, ensure_ascii=False, indent=1))] if tools else []
    return (*offered, *said)


def _text_of(message: dict[str, Any]) -> str:
    content = message.get("content")
    text = content if isinstance(content, str) else "" if content is None else json.dumps(content, ensure_ascii=False, indent=1)
    calls = message.get("tool_calls")
    return f"{text}\n{json.dumps(calls, ensure_ascii=False, indent=1)}".strip() if calls else text


def _open_record(run: RunDir, line: SampleLine) -> dict[str, Any] | None:
    query = "SELECT * FROM open_rows WHERE dataset = ? AND position = ? AND turn = ? AND attempt = ?"
    with reading(run.ledger) as con:
        if con is None or not has_table(con, "open_rows"):
            return None
        record = con.execute(query, (line.dataset, line.position, line.turn, line.attempt)).fetchone()
    return None if record is None else dict(record)


def _sealed_record(run: RunDir, line: SampleLine) -> dict[str, Any] | None:
    import duckdb

    # read after the open rows: a row that is being sealed meanwhile stands in one of both places
    query = (
        "SELECT path FROM sealed_shards WHERE dataset = ? AND first_finished_at <= ? AND last_finished_at >= ? ORDER BY number"
    )
    at = line.finished_at
    with reading(run.ledger) as con:
        if con is None or not has_table(con, "sealed_shards"):
            return None
        paths = [row["path"] for row in con.execute(query, (line.dataset, at + CLOCK_SLACK_S, at - CLOCK_SLACK_S))]
    if not paths:
        return None
    wanted = {"position": line.position, "turn": line.turn, "attempt": line.attempt}
    for path in paths:
        try:
            with connect(run) as con:
                found = con.sql(query_text("setup/sample"), params={"path": str(run.root / path), **wanted})
                records = found.to_arrow_table().to_pylist()
        except duckdb.Error as error:
            raise RunDirError(f"{path} cannot be read, so the sample's texts cannot be shown: {first_line(error)}") from None
        if records:
            return dict(records[0])
    return None
