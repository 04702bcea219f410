"""What is remembered about a watched server."""

from __future__ import annotations

import shutil
import time

import aiohttp
import pytest

from backend.config import RunConfig
from backend.job.process_tree import boot_id
from backend.job.replica import ReplicaPhase
from backend.job.replica_watch import ReplicaWatch
from backend.job.server_probe import KeyAnswer
from backend.job.server_record import ServerRecord, load_record
from backend.run_dir import RunDir

RECORD = ServerRecord("0", "aa", boot_id(), "127.0.0.1", 31000, "key", ["python"], 1.0, 0)


@pytest.fixture
def watch(run: RunDir) -> ReplicaWatch:
    config = RunConfig.model_validate(
        {
            "name": "test",
            "model": {"path": "m"},
            "engine": {"kind": "local", "python": "python", "ready_timeout_s": 100},
            "datasets": [{"name": "A", "path": "a.jsonl"}],
        }
    )
    made = ReplicaWatch(config, run, {}, 0, lambda gpus: None)
    made.begin(RECORD, ReplicaPhase.LOADING, 10.0)
    return made


def answer(watch: ReplicaWatch, ready: bool | None, key: KeyAnswer | None) -> None:
    assert watch.probe is not None
    watch.probe.ready, watch.probe.key = ready, key


def judge(watch: ReplicaWatch, now: float, *, ours: bool = True, must_take_key: bool = False) -> ReplicaPhase:
    watch.judge_load(now, [], port_is_ours=ours, must_take_key=must_take_key)
    return watch.phase


def test_ready_needs_an_answer_of_our_own_process_that_takes_the_key(watch: ReplicaWatch, run: RunDir) -> None:
    answer(watch, None, None)
    assert judge(watch, 11.0) is ReplicaPhase.LOADING
    answer(watch, True, None)
    assert judge(watch, 12.0) is ReplicaPhase.LOADING
    answer(watch, True, KeyAnswer.TAKEN)
    assert judge(watch, 13.0, ours=False) is ReplicaPhase.LOADING
    assert judge(watch, 14.0) is ReplicaPhase.READY
    seen = watch.observation(5)
    assert seen.since == 14.0
    assert seen.endpoint is not None
    assert seen.endpoint.api_key == "key"
    record = load_record(run.servers, "0")
    assert record is not None
    assert record.ready_at == 14.0


def test_a_server_that_ignores_its_key_is_remembered_without_one(watch: ReplicaWatch) -> None:
    answer(watch, True, KeyAnswer.IGNORED)
    assert judge(watch, 11.0, must_take_key=True) is ReplicaPhase.LOADING
    assert judge(watch, 12.0) is ReplicaPhase.READY
    assert watch.record is not None
    assert watch.record.api_key is None


def test_a_server_of_ours_that_refuses_its_key_has_failed(watch: ReplicaWatch) -> None:
    answer(watch, True, KeyAnswer.REFUSED)
    assert judge(watch, 11.0, ours=False) is ReplicaPhase.LOADING
    assert judge(watch, 12.0) is ReplicaPhase.START_FAILED
    assert "not to the API key" in (watch.observation(5).reason or "")


def test_a_record_that_cannot_be_written_is_kept_and_written_later(watch: ReplicaWatch, run: RunDir) -> None:
    shutil.rmtree(run.servers)
    answer(watch, True, KeyAnswer.TAKEN)
    assert judge(watch, 11.0) is ReplicaPhase.READY
    run.servers.mkdir()
    watch.save_again()
    assert load_record(run.servers, "0") == watch.record


async def test_an_answer_that_comes_after_the_stop_changes_nothing(watch: ReplicaWatch, run: RunDir) -> None:
    async with aiohttp.ClientSession() as session:
        probe = watch.probe
        assert probe is not None
        probe.version = "0.5.23"
        watch.end(time.time())
        await watch.ask(session, time.time())
        assert watch.record is None
        assert watch.observation(None).phase is ReplicaPhase.ABSENT
