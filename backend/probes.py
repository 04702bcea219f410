"""What a probe of an API measured, as `state.sqlite` keeps it: who makes one writes it, who compares reads it.

The samples of a probe and what was paid for them are in the ledger; here are the figures alone.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Final

from pydantic import TypeAdapter

from backend.heartbeat import has_table, reading
from backend.run_dir import RunDir

_TABLES: Final = """
-- one row a probe: `figures` is a `Probe` as JSON
CREATE TABLE IF NOT EXISTS probes (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, api TEXT NOT NULL, figures TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What some prompts of the waiting datasets, sent to an API, told. None where it could not be measured."""

    api: str  # its name in run.toml
    model: str  # that was asked for
    at: float  # when it ended, epoch seconds
    asked: int  # requests
    answered: int
    failed: int  # after all tries
    rate_limited: int  # answers 429
    streams: int  # requests at once
    answered_model: str | None = None  # what the API says that it is
    first_token_s: float | None = None  # median over the answers
    stream_tokens_per_s: float | None = None  # of one answer, median
    stream_log_sd: float | None = None  # standard deviation of its logarithm over the answers
    prompt_tokens: int | None = None  # sums over the answers, and so the next ones
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: Decimal | None = None  # what it took
    cost_by_prices_usd: Decimal | None = None  # what the prices that are known say of the same usage
    local_mean_tokens: float | None = None  # mean completion of the same datasets on the box
    lengths_p_value: float | None = None  # chance of lengths so different from the box's, were they the same
    requests_per_minute: float | None = None  # limits that it told
    tokens_per_minute: float | None = None

    @property
    def mean_tokens(self) -> float | None:
        """Mean completion of its answers."""
        return self.completion_tokens / self.answered if self.completion_tokens is not None and self.answered else None

    @property
    def cached_share(self) -> float | None:
        """Share of the prompt tokens that it found in its cache, 0..1."""
        return self.cached_tokens / self.prompt_tokens if self.cached_tokens is not None and self.prompt_tokens else None


def create_table(con: sqlite3.Connection) -> None:
    """Makes it where it is missing."""
    con.executescript(_TABLES)


def write(con: sqlite3.Connection, probe: Probe) -> None:
    """Stores what a probe told."""
    con.execute(
        "INSERT INTO probes (at, api, figures) VALUES (?, ?, ?)", (probe.at, probe.api, _adapter().dump_json(probe).decode())
    )


def read_probes(run: RunDir) -> dict[str, Probe]:
    """API → its newest probe; one that another version wrote is as none. Raises RunDirError."""
    with reading(run.state) as con:
        if con is None or not has_table(con, "probes"):
            return {}
        rows = con.execute("SELECT figures FROM probes ORDER BY id").fetchall()
    found = {}
    for row in rows:
        try:
            probe = _adapter().validate_json(row["figures"])
        except ValueError:
            continue
        found[probe.api] = probe
    return found


@cache
def _adapter() -> TypeAdapter[Probe]:
    return TypeAdapter(Probe)
