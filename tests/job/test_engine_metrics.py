"""SGLang's metrics page becomes a few exact numbers, whichever ranks and labels say them, and quickly."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from backend.job.engine_metrics import EngineMetrics, needed_rows, read_metrics

EXCERPT = (Path(__file__).parents[1] / "data" / "sglang_metrics_excerpt.txt").read_text()


def test_a_page_of_one_rank_is_read_exactly() -> None:
    assert read_metrics(EXCERPT) == EngineMetrics(
        decode_tokens_total=52000.0,
        prefill_compute_tokens_total=9000.0,
        prefill_cache_tokens_total=3000.0,
        generation_tokens_total=30020.0,
        prompt_tokens_total=8015.0,
        requests_total=61.0,
        aborted_requests_total=4.0,
        retracted_total=0.0,
        running=37.0,
        queued=5.0,
        gen_throughput=1234.5,
        kv_capacity_tokens=400000.0,
        token_usage=0.63,
        cache_hit_rate=0.25,
        spec_accept_length=None,
        queue_time_sum_s=6.5,
        queue_time_count=65.0,
        first_token_sum_s=12.0,
        first_token_count=60.0,
    )


def test_an_empty_page_knows_nothing() -> None:
    assert read_metrics("") == EngineMetrics()
    assert read_metrics("# HELP sglang:token_usage x\nvllm:token_usage 1\n") == EngineMetrics()


def test_what_every_tensor_rank_says_counts_once() -> None:
    page = "\n".join(
        f'sglang:num_retracted_requests_total{{model_name="m",pp_rank="0",tp_rank="{rank}"}} {value}'
        for rank, value in ((0, 7.0), (1, 7.0), (2, 6.0), (3, 7.0))
    )
    assert read_metrics(page).retracted_total == 7.0


def test_data_parallel_ranks_are_added_though_each_reports_from_another_tensor_rank() -> None:
    page = "\n".join(
        line
        for dp, tp in ((0, 0), (1, 4))
        for line in (
            f'sglang:num_running_reqs{{dp_rank="{dp}",pp_rank="0",tp_rank="{tp}"}} {10 + dp}',
            f'sglang:token_usage{{dp_rank="{dp}",pp_rank="0",tp_rank="{tp}"}} 0.{3 + dp}',
            f'sglang:cache_hit_rate{{dp_rank="{dp}",pp_rank="0",tp_rank="{tp}"}} 0.{2 + 2 * dp}',
            f'sglang:realtime_tokens_total{{dp_rank="{dp}",mode="decode",pp_rank="0",tp_rank="{tp}"}} {1000 * (dp + 1)}',
            f'sglang:num_retracted_requests_total{{dp_rank="{dp}",pp_rank="0",tp_rank="{tp}"}} 2',
            f'sglang:num_retracted_requests_total{{dp_rank="{dp}",pp_rank="0",tp_rank="{tp + 1}"}} 2',
        )
    )
    metrics = read_metrics(page)
    assert metrics.running == 21.0
    assert metrics.token_usage == 0.4
    assert metrics.cache_hit_rate == pytest.approx(0.3)
    assert metrics.decode_tokens_total == 3000.0
    assert metrics.retracted_total == 4.0


def test_pipeline_stages_after_the_first_do_not_count() -> None:
    page = "\n".join(
        f'sglang:realtime_tokens_total{{mode="decode",pp_rank="{stage}",tp_rank="0"}} {value}'
        for stage, value in ((0, 500), (1, 480))
    )
    assert read_metrics(page).decode_tokens_total == 500.0


def test_the_row_without_a_priority_is_the_schedulers_total() -> None:
    page = (
        'sglang:num_running_reqs{priority="",tp_rank="0"} 9\n'
        'sglang:num_running_reqs{priority="1",tp_rank="0"} 4\n'
        'sglang:num_running_reqs{priority="2",tp_rank="0"} 5\n'
    )
    assert read_metrics(page).running == 9.0


def test_a_gauge_of_several_processes_is_its_largest() -> None:
    page = 'sglang:gen_throughput{pid="1",tp_rank="0"} 100\nsglang:gen_throughput{pid="2",tp_rank="0"} 300\n'
    assert read_metrics(page).gen_throughput == 300.0


def test_labels_may_hold_anything() -> None:
    name = 'a \\"brace} and {comma, \\\\\u2028end'
    page = f'sglang:num_queue_reqs{{model_name="{name}",tp_rank="0"}} 3\nsglang:token_usage{{model_name="{name}"}} 0.5'
    metrics = read_metrics(page)
    assert (metrics.queued, metrics.token_usage) == (3.0, 0.5)


def test_a_torn_or_foreign_line_is_passed_over() -> None:
    page = (
        "sglang:token_usage\nsglang:num_queue_reqs{tp_ra\nsglang:gen_throughput{} x\nsglang:cache_hit_rate NaN\n"
        "sglang:num_running_reqs 2.0\nsglang"
    )
    assert [row.name for row in needed_rows(page)] == ["num_running_reqs"]
    assert read_metrics(page) == EngineMetrics(running=2.0)


def test_a_large_number_keeps_its_value() -> None:
    assert read_metrics('sglang:generation_tokens_total{model_name="m"} 1.234567891e+09').generation_tokens_total == (
        1234567891.0
    )


def test_a_retraction_counter_is_unknown_where_the_server_is_too_old_to_count_live() -> None:
    assert read_metrics("sglang:num_running_reqs 1").retracted_total is None


def test_speculative_decoding_shows_its_accept_length() -> None:
    assert read_metrics('sglang:spec_accept_length{tp_rank="0"} 2.7').spec_accept_length == 2.7


def test_a_90_kb_page_takes_under_2_ms() -> None:
    """The classic parser of the whole page takes 40 ms."""
    bucket = 'sglang:e2e_request_latency_seconds_bucket{engine_type="unified",le="%d.0",model_name="demo"} 17.0\n'
    page = EXCERPT + "".join(bucket % n for n in range(900))
    assert len(page) > 90_000
    durations = []
    for _ in range(20):
        begin = time.perf_counter()
        read_metrics(page)
        durations.append(time.perf_counter() - begin)
    print(f"{len(page):,} characters in {min(durations) * 1000:.2f} ms")
    assert min(durations) < 0.002
