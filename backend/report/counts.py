"""How much of each dataset is done, from the ledger alone: right also when no supervisor lives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from backend.heartbeat import has_table, reading
from backend.run_dir import RunDir


@dataclass(frozen=True, slots=True)
class Counts:
    """Samples that count: sealed and open ones without those that a redo replaced. Rejected ones are among them."""

    finished_samples: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    rejected: int = 0
    superseded_samples: int | None = 0  # replaced by a redo, not among the above; None where it was not asked


_COUNTED = ("finished_samples", "prompt_tokens", "completion_tokens", "rejected")
_SEALED = """SELECT dataset, SUM(rows), SUM(prompt_tokens), SUM(completion_tokens), SUM(rejected)
FROM sealed_shards GROUP BY dataset"""
_OPEN = """SELECT dataset, COUNT(*), SUM(prompt_tokens), SUM(completion_tokens), SUM(finish_reason = 'rejected')
FROM open_rows GROUP BY dataset"""
_SUPERSEDED = """SELECT dataset, COUNT(*), SUM(prompt_tokens), SUM(completion_tokens), SUM(finish_reason = 'rejected')
FROM superseded GROUP BY dataset"""


def read_counts(run: RunDir) -> dict[str, Counts] | None:
    """Dataset → counts (one without samples may be absent); None where the run has no ledger. Raises RunDirError."""
    with reading(run.ledger) as con:
        if con is None:
            return None
        if not all(has_table(con, name) for name in ("sealed_shards", "open_rows", "superseded")):
            return {}
        # one transaction: a row that is being sealed is counted in one of both places
        con.execute("BEGIN")
        sealed, opened, superseded = (con.execute(sql).fetchall() for sql in (_SEALED, _OPEN, _SUPERSEDED))
        con.execute("COMMIT")
    return combine(_by_dataset(sealed), _by_dataset(opened), _by_dataset(superseded))


def combine(
    sealed: Mapping[str, tuple[int, ...]], opened: Mapping[str, tuple[int, ...]], superseded: Mapping[str, tuple[int, ...]]
) -> dict[str, Counts]:
    """sealed + open − superseded, each dataset → figures in the order of `_COUNTED`."""
    zero = (0,) * len(_COUNTED)
    counts = {}
    for dataset in {*sealed, *opened, *superseded}:
        gone = superseded.get(dataset, zero)
        sums = (s + o - g for s, o, g in zip(sealed.get(dataset, zero), opened.get(dataset, zero), gone, strict=True))
        counts[dataset] = Counts(**dict(zip(_COUNTED, sums, strict=True)), superseded_samples=gone[0])
    return counts


def _by_dataset(rows: Iterable[tuple[str | int | None, ...]]) -> dict[str, tuple[int, ...]]:
    return {str(row[0]): tuple(int(value or 0) for value in tuple(row)[1:]) for row in rows}
