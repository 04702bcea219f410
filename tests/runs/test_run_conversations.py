"""Conversations of which every assistant turn is made, and tools, through the end of a supervisor."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from live_run import LiveRun

from backend.records import RunPhase

NewRun = Callable[..., LiveRun]

TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks a word up.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}


def conversation(number: int) -> dict[str, Any]:
    """Three assistant turns."""
    words = [f"Tell me of {number}.", f"And of {number + 1}?", "Thanks. In one sentence?"]
    turns: list[dict[str, str]] = []
    for word in words:
        turns += [{"role": "user", "content": word}, {"role": "assistant", "content": "the original answer"}]
    return {"id": f"C-{number}", "messages": turns}


def tool_conversation(number: int) -> dict[str, Any]:
    """A call with its result, then a question."""
    call = {"id": "original", "type": "function", "function": {"name": "look_up", "arguments": '{"word": "x"}'}}
    return {
        "id": f"T-{number}",
        "tools": [TOOL],
        "messages": [
            {"role": "user", "content": f"Look {number} up."},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "original", "content": f"{number} is a number."},
            {"role": "assistant", "content": "It is a number."},
        ],
    }


def write(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_every_turn_and_every_tool_result_is_made_once_though_the_supervisor_is_killed(tmp_path: Path, new_run: NewRun) -> None:
    write(tmp_path / "C.jsonl", [conversation(n) for n in range(15)])
    write(tmp_path / "T.jsonl", [tool_conversation(n) for n in range(10)])
    lengths = tmp_path / "lengths.json"
    lengths.write_text(json.dumps([{"match": "look_up", "mean": 200, "tool_share": 1.0}, {"match": "", "mean": 400}]))
    run = new_run(
        [{"name": "C", "path": "C.jsonl", "turns": "all"}, {"name": "T", "path": "T.jsonl", "turns": "all"}],
        args=["--speed", "15", "--tool-call-parser", "qwen25", "--lengths", str(lengths)],
        generation={"concurrency": 8, "max_new_tokens": 800},
    )
    run.start()
    run.wait(lambda s: s.datasets[0].finished_samples >= 8 and s.in_flight > 0)
    run.kill_supervisor()
    before = {(row.dataset, row.sample_id): row for row in run.rows()}
    run.start()
    assert run.wait_left().phase is RunPhase.FINISHED

    run.check_exact({"C": [f"C-{n}/t{turn}" for n in range(15) for turn in range(3)]})
    rows = {(row.dataset, row.sample_id): row for row in run.rows()}
    assert {key: rows[key] for key in before} == before
    for number in range(15):
        first, second, third = (rows["C", f"C-{number}/t{turn}"] for turn in range(3))
        asked = json.loads(third.messages)["messages"]
        assert [message["role"] for message in asked] == ["user", "assistant", "user", "assistant", "user"]
        assert [asked[1]["content"], asked[3]["content"]] == [first.answer, second.answer]
        assert (first.turn, second.turn, third.turn) == (0, 1, 2)
        assert first.finished_at <= second.started_at
        assert second.finished_at <= third.started_at

    made_calls = [row for (dataset, sample_id), row in rows.items() if dataset == "T" and sample_id.endswith("/t0")]
    assert len(made_calls) == 10
    for row in made_calls:
        assert row.finish_reason == "tool_calls"
        (call,) = json.loads(row.tool_calls or "null")
        assert call["function"]["name"] == "look_up"
        assert json.loads(row.messages)["tools"] == [TOOL]
        answered = json.loads(rows["T", row.sample_id.replace("/t0", "/t1")].messages)["messages"]
        assert [message["role"] for message in answered] == ["user", "assistant", "tool"]
        assert answered[1]["tool_calls"] == [call]
        assert answered[2]["tool_call_id"] == call["id"]
        assert answered[2]["content"].endswith(" is a number.")
