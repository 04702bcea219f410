"""Why a dataset is held, as its guard wrote it down, with the texts of the worst samples."""

from __future__ import annotations

import json

from backend.heartbeat import has_table, reading
from backend.holds import Example, Hold, fact_name, from_json
from backend.records import Intent, IntentAction, Outcome
from backend.report.samples import Sample, SampleLine, read_sample
from backend.run_dir import RunDir


def read_hold(run: RunDir, dataset: str) -> Hold | None:
    """The hold that nobody has lifted yet; None without one. Raises RunDirError."""
    with reading(run.ledger) as con:
        if con is None or not (has_table(con, "facts") and has_table(con, "accepted_intents")):
            return None
        fact = con.execute("SELECT value FROM facts WHERE key = ?", (fact_name(dataset),)).fetchone()
        if fact is None:
            return None
        rows = con.execute("SELECT subject, action, value, who, at, token FROM accepted_intents ORDER BY seq").fetchall()
    intents = [
        Intent(r["subject"], IntentAction(r["action"]), json.loads(r["value"]), r["who"], r["at"], r["token"]) for r in rows
    ]
    holds = from_json(fact["value"], dataset, intents)
    return holds[-1] if holds and not holds[-1].lifted else None


def read_example(run: RunDir, dataset: str, example: Example) -> Sample | None:
    """The whole sample; None where it is no longer there. Raises RunDirError where its shard cannot be read."""
    line = SampleLine(
        dataset=dataset,
        position=example.position,
        turn=example.turn,
        attempt=example.attempt,
        outcome=Outcome.OK,  # not asked for: the sample's own facts tell
        finish_reason="",
        prompt_tokens=None,
        completion_tokens=example.completion_tokens,
        started_at=example.started_at,
        finished_at=example.finished_at,
    )
    return read_sample(run, line)
