"""The load that an engine's JSON endpoints tell, of new and of older servers."""

from __future__ import annotations

from typing import Any

import pytest

from backend.job.engine_loads import (
    EngineLoad,
    ServerInfo,
    UnexpectedAnswerError,
    read_get_load,
    read_loads,
    read_server_info,
)

NOW = 1_796_045_270.0


def rank(number: int, **other: Any) -> dict[str, Any]:
    return {
        "timestamp": 1_796_045_267.5,
        "dp_rank": number,
        "num_running_reqs": 30,
        "num_waiting_reqs": 4,
        "max_total_num_tokens": 65536,
        "max_running_requests": 64,
        "token_usage": 0.25,
        "gen_throughput": 0.0,
        "total_prefill_uncached_tokens": 3517,
        "decode_moments": [3147.0, 27168.0, 44299184.0, 526372.0, 549617958.0, 27168.0],
        **other,
    }


def answer(*ranks: dict[str, Any]) -> dict[str, Any]:
    return {"timestamp": "2026-11-30T13:27:47.750000+00:00", "version": "0.5.23", "loads": list(ranks)}


def test_one_rank_is_read_exactly() -> None:
    assert read_loads(answer(rank(0)), NOW) == EngineLoad(
        running=30.0,
        queued=4.0,
        token_usage=0.25,
        kv_capacity_tokens=65536.0,
        max_running_requests=64.0,
        generated_tokens=27168.0,
        prefilled_tokens=3517.0,
        heartbeat_age_s=0.25,
        version="0.5.23",
    )


def test_ranks_are_added_and_the_slowest_heartbeat_and_the_fullest_pool_count() -> None:
    load = read_loads(answer(rank(0), rank(1, timestamp=1_796_045_260.75, token_usage=0.9)), NOW)
    assert (load.running, load.queued, load.generated_tokens, load.max_running_requests) == (60.0, 8.0, 54336.0, 128.0)
    assert (load.heartbeat_age_s, load.token_usage) == (7.0, 0.9)


def test_the_heartbeats_age_is_by_the_servers_clock() -> None:
    """Ours may differ by hours: only where the answer has no time of its own is `now` used."""
    assert read_loads(answer(rank(0)), NOW + 7200).heartbeat_age_s == 0.25
    untimed = {"loads": [rank(0)]}
    assert read_loads(untimed, NOW).heartbeat_age_s == 2.5


def test_before_the_first_decode_step_nothing_is_generated_and_an_old_server_does_not_know() -> None:
    assert read_loads(answer(rank(0, decode_moments=None)), NOW).generated_tokens == 0.0
    old = rank(0)
    del old["decode_moments"]
    assert read_loads(answer(old), NOW).generated_tokens is None


def test_what_one_rank_leaves_out_is_unknown_for_all() -> None:
    assert read_loads(answer(rank(0), rank(1, num_running_reqs=None)), NOW).running is None


@pytest.mark.parametrize("wrong", [None, [], {"loads": None}, {"error": "x"}, {"loads": [1]}, "text"])
def test_another_shape_is_told_as_what_it_is(wrong: Any) -> None:
    with pytest.raises(UnexpectedAnswerError, match="/v1/loads answered no list of loads but"):
        read_loads(wrong, NOW)


def test_an_older_server_tells_running_and_waiting_together() -> None:
    ranks = [{"dp_rank": 0, "num_reqs": 12, "num_waiting_reqs": 2, "num_tokens": 9}, {"num_reqs": 5, "num_waiting_reqs": 0}]
    assert read_get_load(ranks) == EngineLoad(running=15.0, queued=2.0)
    assert read_get_load(ranks[0]) == EngineLoad(running=10.0, queued=2.0)


def test_the_oldest_servers_load_says_nothing_usable() -> None:
    assert read_get_load({"load": 7}) == EngineLoad()
    with pytest.raises(UnexpectedAnswerError):
        read_get_load("busy")


def test_server_info_gives_version_and_limits() -> None:
    states = [
        {"effective_max_running_requests_per_dp": 64, "memory_usage": {"token_capacity": 65536}},
        {"effective_max_running_requests_per_dp": 64, "memory_usage": {"token_capacity": 65536}},
    ]
    info = {"version": "0.5.23", "max_running_requests": 64, "internal_states": states}
    assert read_server_info(info) == ServerInfo(version="0.5.23", max_running_requests=128.0, kv_capacity_tokens=131072.0)


def test_an_older_server_info_has_its_limits_at_the_top() -> None:
    info = {"version": "0.4.5", "max_total_num_tokens": 20480, "max_running_requests": None, "status": "ready"}
    assert read_server_info(info) == ServerInfo(version="0.4.5", kv_capacity_tokens=20480.0)
    with pytest.raises(UnexpectedAnswerError):
        read_server_info([])
