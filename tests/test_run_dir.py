"""File names of a run, the file systems that are refused, and how databases are opened."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from backend.run_dir import RunDir, RunDirError, file_system_type, open_ledger, open_state, refuse_network_file_system


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "a run?#%")  # what a URI would misread
    run.create_folders()
    return run


def mounts_file(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "mounts"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "lustre", "fuse.sshfs"])
def test_a_network_file_system_is_refused_with_the_remedy(tmp_path: Path, kind: str) -> None:
    mounts = mounts_file(tmp_path, "/dev/vda / ext4 rw 0 0", f"server:/x {tmp_path} {kind} rw 0 0")
    with pytest.raises(RunDirError, match=f"lies on {kind}.*local disk"):
        refuse_network_file_system(tmp_path / "runs" / "x", mounts)


def test_a_local_disk_is_accepted_though_its_neighbour_is_on_the_network(tmp_path: Path) -> None:
    mounts = mounts_file(tmp_path, "/dev/vda / ext4 rw 0 0", f"server:/x {tmp_path}/run nfs rw 0 0", "torn line")
    refuse_network_file_system(tmp_path / "runs", mounts)
    assert file_system_type(tmp_path / "runs", mounts) == "ext4"


def test_the_last_of_two_mounts_at_one_place_counts_and_spaces_in_names_are_read(tmp_path: Path) -> None:
    place = str(tmp_path / "my runs").replace(" ", "\\040")
    mounts = mounts_file(tmp_path, "/dev/vda / ext4 rw 0 0", f"a {place} ext4 rw 0 0", f"b {place} nfs rw 0 0")
    assert file_system_type(tmp_path / "my runs" / "x", mounts) == "nfs"


def test_without_a_list_of_mounts_the_type_is_not_known(tmp_path: Path) -> None:
    assert file_system_type(tmp_path, tmp_path / "absent") is None
    refuse_network_file_system(tmp_path, tmp_path / "absent")


def test_the_ledger_survives_a_power_cut_and_only_the_owner_reads_what_proves_servers(run: RunDir) -> None:
    with closing(open_ledger(run)) as con:
        assert con.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert con.execute("PRAGMA synchronous").fetchone()[0] == 2  # FULL
    assert run.servers.stat().st_mode & 0o777 == 0o700


def test_a_reader_cannot_write_and_says_so_when_there_is_nothing(run: RunDir) -> None:
    with pytest.raises(RunDirError, match="never started"):
        open_ledger(run, read_only=True)
    open_state(run).close()
    with closing(open_state(run, read_only=True)) as con, pytest.raises(sqlite3.OperationalError):
        con.execute("DELETE FROM events")


def test_a_database_of_a_newer_version_is_refused(run: RunDir) -> None:
    with closing(open_ledger(run)) as con:
        con.execute("PRAGMA user_version=99")
    with pytest.raises(RunDirError, match="newer Headway"):
        open_ledger(run)


def test_opening_twice_is_harmless(run: RunDir) -> None:
    open_ledger(run).close()
    with closing(open_ledger(run)) as con:
        assert con.execute("SELECT count(*) FROM open_rows").fetchone()[0] == 0
