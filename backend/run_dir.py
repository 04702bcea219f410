"""Every file name of a run, and how its databases are opened. What the tables mean is told beside each `CREATE`."""

from __future__ import annotations

import os
import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from backend.rows import sqlite_column_types

SCHEMA_VERSION: Final = 1
WAL_KEPT_BYTES: Final = 64 << 20  # a WAL that grew larger is cut when it has been checkpointed
MOUNTS: Final = Path("/proc/mounts")
_OCTAL: Final = re.compile(r"\\([0-7]{3})")  # how /proc/mounts writes white space in a name
PAGE_BYTES: Final = 8192  # texts and ids of a sample are a few kB: fewer overflow pages to follow than with 4096

# Places where a WAL database breaks: the -shm file of SQLite is shared memory, and these file systems do not share it.
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "smb3", "smbfs", "ceph", "glusterfs", "afs", "9p", "fuse.sshfs"}
)


class RunDirError(Exception):
    """A run directory cannot be used; the message says which, why and what to do."""


@dataclass(frozen=True, slots=True)
class RunDir:
    """The files of one run."""

    root: Path

    @property
    def name(self) -> str:
        """The run's name is its folder's."""
        return self.root.name

    @property
    def config(self) -> Path:
        """`run.toml`, frozen at the start."""
        return self.root / "run.toml"

    @property
    def state(self) -> Path:
        """`state.sqlite`: intents, states, heartbeat, events, telemetry. Losing it loses history, never samples."""
        return self.root / "state.sqlite"

    @property
    def ledger(self) -> Path:
        """`ledger.sqlite`: open rows, the manifest of sealed shards, accepted intents, billed attempts."""
        return self.root / "ledger.sqlite"

    @property
    def lock(self) -> Path:
        """Held (flock) as long as the supervisor lives."""
        return self.root / "supervisor.lock"

    @property
    def shards(self) -> Path:
        """Sealed shards, a folder a dataset."""
        return self.root / "shards"

    @property
    def logs(self) -> Path:
        """The supervisor's log and each server's."""
        return self.root / "logs"

    @property
    def shared(self) -> Path:
        """Snapshots made for others; made when the first one is."""
        return self.root / "shared"

    @property
    def exports(self) -> Path:
        """Where a page puts exports unless another folder is named."""
        return self.root / "exports"

    @property
    def servers(self) -> Path:
        """What is needed to prove that a server is ours after the supervisor died; mode 0600, holds its API key."""
        return self.root / "servers"

    @property
    def in_flight(self) -> Path:
        """Journal of request ids sent and not yet answered, so that a new supervisor can abort the former one's."""
        return self.root / "in_flight.journal"

    def shard(self, dataset: str, number: int) -> Path:
        """`shards/<dataset>/00000042.parquet`."""
        return self.shards / dataset / f"{number:08d}.parquet"

    def supervisor_log(self) -> Path:
        """The supervisor's own log."""
        return self.logs / "supervisor.log"

    def server_log(self, replica: str) -> Path:
        """What a server printed, of all its lives."""
        return self.logs / f"server-{replica}.log"

    def create_folders(self) -> None:
        """Makes the folders. Raises RunDirError on a file system where WAL databases do not work."""
        self.root.mkdir(parents=True, exist_ok=True)
        refuse_network_file_system(self.root)
        for folder in (self.shards, self.logs, self.servers):
            folder.mkdir(exist_ok=True)
        self.servers.chmod(0o700)


def refuse_network_file_system(path: Path, mounts: Path = MOUNTS) -> None:
    """Raises RunDirError where `path` lies on NFS, Lustre and the like."""
    kind = file_system_type(path, mounts)
    if kind in NETWORK_FILE_SYSTEMS:
        raise RunDirError(
            f"{path} lies on {kind}: SQLite's WAL databases do not work there. Put the run on a local disk "
            f"(shards may go elsewhere: make {path.name}/shards a link)."
        )


def file_system_type(path: Path, mounts: Path = MOUNTS) -> str | None:
    """The type of the mount that holds `path`, from /proc/mounts; None where it cannot be read."""
    target = os.path.realpath(path)
    best: tuple[int, str] | None = None
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    for line in lines:
        words = line.split(" ")
        if len(words) < 3:
            continue
        mount, kind = _OCTAL.sub(lambda match: chr(int(match[1], 8)), words[1]), words[2]
        # A later mount of the same place covers the earlier one.
        if (target == mount or target.startswith(mount.rstrip("/") + "/")) and (best is None or len(mount) >= best[0]):
            best = (len(mount), kind)
    return best[1] if best else None


def open_state(run: RunDir, *, read_only: bool = False) -> sqlite3.Connection:
    """state.sqlite, made if it is not there (unless `read_only`). NORMAL sync: a power cut may lose its last second."""
    return _open(run.state, _STATE_TABLES, synchronous="NORMAL", read_only=read_only)


def open_ledger(run: RunDir, *, read_only: bool = False) -> sqlite3.Connection:
    """ledger.sqlite, made if it is not there (unless `read_only`). FULL sync: a committed sample survives a power cut."""
    return _open(run.ledger, _ledger_tables(), synchronous="FULL", read_only=read_only)


def _open(path: Path, tables: str, *, synchronous: str, read_only: bool) -> sqlite3.Connection:
    if read_only:
        if not path.exists():
            raise RunDirError(f"{path} does not exist: the run was never started.")
        con = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=10.0, isolation_level=None)
        con.row_factory = sqlite3.Row
        return con
    con = sqlite3.connect(path, timeout=30.0, isolation_level=None, check_same_thread=False)
    try:
        _prepare(con, path, tables, synchronous)
    except BaseException:
        con.close()
        raise
    return con


def _prepare(con: sqlite3.Connection, path: Path, tables: str, synchronous: str) -> None:
    con.row_factory = sqlite3.Row
    version = con.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise RunDirError(f"{path} was written by a newer Headway (schema {version}; here {SCHEMA_VERSION}): update Headway.")
    con.execute(f"PRAGMA page_size={PAGE_BYTES}")  # only a new database takes it
    mode = con.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode != "wal":
        raise RunDirError(f"{path}: SQLite could not switch to WAL (it says {mode!r}). Put the run on a local disk.")
    con.execute(f"PRAGMA synchronous={synchronous}")
    con.execute(f"PRAGMA journal_size_limit={WAL_KEPT_BYTES}")
    con.executescript(tables)
    con.execute(f"PRAGMA user_version={SCHEMA_VERSION}")


_STATE_TABLES: Final = """
-- what pages and the CLI want; only ever appended to. `token` is unique, so a double click is one wish
CREATE TABLE IF NOT EXISTS intents (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, who TEXT NOT NULL, subject TEXT NOT NULL, action TEXT NOT NULL,
  value TEXT NOT NULL, token TEXT NOT NULL UNIQUE);
-- what the supervisor answered to each: accepted, or refused with the reason
CREATE TABLE IF NOT EXISTS intent_answers (
  intent_id INTEGER PRIMARY KEY, at REAL NOT NULL, accepted INTEGER NOT NULL, message TEXT NOT NULL);
-- samples that somebody marked on the Data page
CREATE TABLE IF NOT EXISTS flags (
  dataset TEXT NOT NULL, sample_id TEXT NOT NULL, turn INTEGER NOT NULL, attempt INTEGER NOT NULL, at REAL NOT NULL,
  who TEXT NOT NULL, note TEXT NOT NULL, PRIMARY KEY (dataset, sample_id, turn, attempt));
-- one row: the supervisor's last sign of life; `status` is the JSON that `status --json` documents
CREATE TABLE IF NOT EXISTS heartbeat (
  one INTEGER PRIMARY KEY CHECK (one = 1), at REAL NOT NULL, pid INTEGER NOT NULL, life INTEGER NOT NULL,
  phase TEXT NOT NULL, status TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS events (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, kind TEXT NOT NULL, subject TEXT NOT NULL, severity TEXT NOT NULL,
  message TEXT NOT NULL, who TEXT NOT NULL, details TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS events_at ON events (at);
"""


def _ledger_tables() -> str:
    types = sqlite_column_types()
    definitions, columns = ", ".join(f"{name} {kind}" for name, kind in types.items()), ", ".join(types)
    return f"""
-- finished samples, in the order of finishing. Those up to `sealed_through` are in a shard and are deleted bit by bit,
-- because deleting a whole shard's texts at once would keep commits waiting for seconds
CREATE TABLE IF NOT EXISTS stored_rows (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, {definitions}, UNIQUE (dataset, sample_id, turn, attempt));
CREATE TABLE IF NOT EXISTS sealed_through (dataset TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
-- finished samples that no sealed shard holds yet: this and the shards in the manifest are all there is
CREATE VIEW IF NOT EXISTS open_rows AS SELECT {columns} FROM stored_rows AS r
  WHERE r.seq > ifnull((SELECT s.seq FROM sealed_through AS s WHERE s.dataset = r.dataset), 0);
-- the manifest: a file in shards/ that is not named here does not exist
CREATE TABLE IF NOT EXISTS sealed_shards (
  dataset TEXT NOT NULL, number INTEGER NOT NULL, path TEXT NOT NULL, rows INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL,
  completion_tokens INTEGER NOT NULL, reasoning_tokens INTEGER NOT NULL, rejected INTEGER NOT NULL,
  truncated INTEGER NOT NULL, bytes INTEGER NOT NULL, sha256 TEXT NOT NULL, first_finished_at REAL NOT NULL,
  last_finished_at REAL NOT NULL, sealed_at REAL NOT NULL, PRIMARY KEY (dataset, number));
-- rows that a redo replaced: they stay where they are and no longer count
CREATE TABLE IF NOT EXISTS superseded (
  dataset TEXT NOT NULL, sample_id TEXT NOT NULL, turn INTEGER NOT NULL, attempt INTEGER NOT NULL, position INTEGER NOT NULL,
  prompt_tokens INTEGER, completion_tokens INTEGER NOT NULL, reasoning_tokens INTEGER, finish_reason TEXT NOT NULL,
  at REAL NOT NULL, reason TEXT NOT NULL,
  PRIMARY KEY (dataset, sample_id, turn, attempt));
-- decisions survive the loss of state.sqlite
CREATE TABLE IF NOT EXISTS accepted_intents (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, token TEXT NOT NULL UNIQUE, at REAL NOT NULL, who TEXT NOT NULL,
  subject TEXT NOT NULL, action TEXT NOT NULL, value TEXT NOT NULL);
-- money spent, failed attempts included
CREATE TABLE IF NOT EXISTS billed_attempts (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, source TEXT NOT NULL, dataset TEXT NOT NULL,
  sample_id TEXT NOT NULL, turn INTEGER NOT NULL, attempt INTEGER NOT NULL, prompt_tokens INTEGER, completion_tokens INTEGER,
  cost_usd REAL, outcome TEXT NOT NULL);
-- lives of the supervisor: how often it was started, and a few facts that must outlive state.sqlite
CREATE TABLE IF NOT EXISTS facts (key TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
