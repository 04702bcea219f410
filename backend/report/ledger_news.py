"""What a ledger holds that a reader has not seen yet, read at one moment: the manifest, newer open rows, superseded ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from backend.heartbeat import has_table, reading
from backend.rows import COLUMNS, LONG_COLUMNS
from backend.run_dir import RunDir

# Texts and ids are left where they are. Of tool calls only whether there are any is asked, of an error its words.
_SHORT: Final = dict.fromkeys(LONG_COLUMNS, "NULL") | {
    "error": "error",
    "tool_calls": "CASE WHEN tool_calls IS NULL THEN NULL ELSE '' END",
}
_OPEN: Final = f"""SELECT seq, {", ".join(_SHORT.get(name, name) for name in COLUMNS)} FROM stored_rows AS r
WHERE seq > ? AND seq > ifnull((SELECT s.seq FROM sealed_through AS s WHERE s.dataset = r.dataset), 0) ORDER BY seq"""


class Shard(NamedTuple):
    """A line of the manifest."""

    path: str  # relative to the run
    sha256: str
    dataset: str
    rows: int
    size_bytes: int
    sealed_at: float


@dataclass(frozen=True, slots=True)
class News:
    """A consistent look at a ledger."""

    shards: frozenset[Shard] = frozenset()
    sealed_through: tuple[tuple[str, int], ...] = ()  # dataset, seq: open rows up to it are in a shard
    open_records: tuple[tuple[Any, ...], ...] = ()  # seq and the values of COLUMNS, texts and ids missing
    newest_seq: int = 0  # what the next look should begin after
    superseded_mark: tuple[int, int] = (0, 0)  # changes whenever rows are superseded
    superseded: tuple[tuple[str, int, int, int], ...] = ()  # dataset, position, turn, attempt


def read_news(run: RunDir, after_seq: int, known_mark: tuple[int, int]) -> News:
    """What came after `after_seq`; superseded rows only where they are no longer those of `known_mark`.

    Empty without a ledger. Raises RunDirError.
    """
    with reading(run.ledger) as con:
        if con is None or not has_table(con, "superseded"):
            return News()
        con.row_factory = None
        con.execute("BEGIN")
        shards = frozenset(
            Shard(*row) for row in con.execute("SELECT path, sha256, dataset, rows, bytes, sealed_at FROM sealed_shards")
        )
        through = tuple(con.execute("SELECT dataset, seq FROM sealed_through ORDER BY dataset"))
        opened = tuple(con.execute(_OPEN, (after_seq,)))
        mark = con.execute("SELECT count(*), ifnull(max(rowid), 0) FROM superseded").fetchone()
        superseded = () if mark == known_mark else tuple(con.execute("SELECT dataset, position, turn, attempt FROM superseded"))
        (newest,) = con.execute("SELECT ifnull(max(seq), 0) FROM sqlite_sequence WHERE name = 'stored_rows'").fetchone()
        con.execute("COMMIT")
    return News(shards, through, opened, newest, mark, superseded)
