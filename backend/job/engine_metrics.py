"""SGLang's `/metrics` page to the few numbers Headway uses: text in, values out, nothing else.

A page holds a thousand lines; only those of needed names are looked at closely. The rules by which rows of several
ranks and labels become one number are in `NEEDED`. Getting the page and making rates is `engine_probe.py`'s part.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Across(StrEnum):
    """How rows that count different things become one number."""

    SUM = "sum"  # counters, requests, tokens
    MAX = "max"  # the fullest rank is the one that blocks
    MEAN = "mean"  # ratios


@dataclass(frozen=True, slots=True)
class Rule:
    """How the rows of one metric are joined."""

    across: Across
    scheduler: bool  # of the scheduler (labels of ranks; `priority=""` is the total) or of the HTTP process


# Labels by which the same number is repeated (each rank of a group says it, each process that ever said it): the
# largest counts. Every other label tells different things apart (dp_rank, is_streaming): joined by the rule.
REPEATED: Final = frozenset({"tp_rank", "moe_ep_rank", "pid"})

_SCHEDULER_SUM: Final = Rule(Across.SUM, scheduler=True)
_HTTP_SUM: Final = Rule(Across.SUM, scheduler=False)
NEEDED: Final[dict[str, Rule]] = {
    "realtime_tokens_total": _SCHEDULER_SUM,
    "num_retracted_requests_total": _SCHEDULER_SUM,
    "num_running_reqs": _SCHEDULER_SUM,
    "num_queue_reqs": _SCHEDULER_SUM,
    "gen_throughput": _SCHEDULER_SUM,
    "max_total_num_tokens": _SCHEDULER_SUM,
    "token_usage": Rule(Across.MAX, scheduler=True),
    "cache_hit_rate": Rule(Across.MEAN, scheduler=True),
    "spec_accept_length": Rule(Across.MEAN, scheduler=True),
    "queue_time_seconds_sum": _SCHEDULER_SUM,
    "queue_time_seconds_count": _SCHEDULER_SUM,
    "generation_tokens_total": _HTTP_SUM,
    "prompt_tokens_total": _HTTP_SUM,
    "num_requests_total": _HTTP_SUM,
    "num_aborted_requests_total": _HTTP_SUM,
    "time_to_first_token_seconds_sum": _HTTP_SUM,
    "time_to_first_token_seconds_count": _HTTP_SUM,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMetrics:
    """What one page says. `_total`, sums and counts are of the server's present life; None is not on the page."""

    decode_tokens_total: float | None = None  # live: counted each decode step
    prefill_compute_tokens_total: float | None = None  # live: prompt tokens computed
    prefill_cache_tokens_total: float | None = None  # live: prompt tokens that the prefix cache gave
    generation_tokens_total: float | None = None  # counted when a request FINISHES: flat for as long as one takes
    prompt_tokens_total: float | None = None  # likewise
    requests_total: float | None = None  # finished
    aborted_requests_total: float | None = None
    retracted_total: float | None = None  # requests put back for want of KV memory
    running: float | None = None  # gauges: a hung scheduler leaves them as they were
    queued: float | None = None
    gen_throughput: float | None = None  # tokens/s
    kv_capacity_tokens: float | None = None
    token_usage: float | None = None  # 0..1
    cache_hit_rate: float | None = None  # 0..1
    spec_accept_length: float | None = None  # None without speculative decoding
    queue_time_sum_s: float | None = None
    queue_time_count: float | None = None
    first_token_sum_s: float | None = None
    first_token_count: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One line: the name without its prefix, the labels, the number."""

    name: str
    labels: dict[str, str]
    value: float


_ROW: Final = re.compile(r'^sglang[:_](\w+)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?\s+(\S+)')
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def needed_rows(page: str) -> list[Row]:
    """The rows of the names in `NEEDED`. The prefix is `sglang:` or `sglang_`, as the Accept header decided."""
    rows: list[Row] = []
    # Not splitlines(): a label may hold U+2028, which is no end of a line here.
    for line in page.split("\n"):
        # The cheap part first: nearly every line is a comment or a bucket that nobody asked for.
        if not line.startswith("sglang"):
            continue
        end = line.find("{", 7)
        if line[7 : end if end > 0 else line.find(" ")] not in NEEDED:
            continue
        match = _ROW.match(line)
        if match is None:
            continue
        name, labels, number = match.groups()
        try:
            value = float(number)
        except ValueError:
            continue
        if not math.isnan(value):
            rows.append(Row(name, dict(_LABEL.findall(labels or "")), value))
    return rows


def read_metrics(page: str) -> EngineMetrics:
    """The numbers of a page; what is not on it is None."""
    by_name: dict[str, list[Row]] = defaultdict(list)
    for row in needed_rows(page):
        by_name[row.name].append(row)

    def one(name: str, **labels: str) -> float | None:
        chosen = [row for row in by_name[name] if all(row.labels.get(k) == v for k, v in labels.items())]
        return join_rows(chosen, NEEDED[name])

    decode = one("realtime_tokens_total", mode="decode")
    retracted = one("num_retracted_requests_total")
    if retracted is None and decode is not None:
        # A labelled counter has no row before its first event, and a server that counts tokens live has this counter.
        retracted = 0.0
    return EngineMetrics(
        decode_tokens_total=decode,
        prefill_compute_tokens_total=one("realtime_tokens_total", mode="prefill_compute"),
        prefill_cache_tokens_total=one("realtime_tokens_total", mode="prefill_cache"),
        generation_tokens_total=one("generation_tokens_total"),
        prompt_tokens_total=one("prompt_tokens_total"),
        requests_total=one("num_requests_total"),
        aborted_requests_total=one("num_aborted_requests_total"),
        retracted_total=retracted,
        running=one("num_running_reqs"),
        queued=one("num_queue_reqs"),
        gen_throughput=one("gen_throughput"),
        kv_capacity_tokens=one("max_total_num_tokens"),
        token_usage=one("token_usage"),
        cache_hit_rate=one("cache_hit_rate"),
        # The gauge is there without speculative decoding too, and says 0.
        spec_accept_length=one("spec_accept_length") or None,
        queue_time_sum_s=one("queue_time_seconds_sum"),
        queue_time_count=one("queue_time_seconds_count"),
        first_token_sum_s=one("time_to_first_token_seconds_sum"),
        first_token_count=one("time_to_first_token_seconds_count"),
    )


def join_rows(rows: Iterable[Row], rule: Rule) -> float | None:
    """One number of a metric's rows; None of none.

    Pipeline stages repeat each other: only stage 0 counts. With priorities, the scheduler's row `priority=""` is the
    total of the others. Then the largest of each group that differs only in `REPEATED` labels, and the groups joined.
    """
    kept = [row for row in rows if row.labels.get("pp_rank", "0") == "0"]
    if rule.scheduler and any(row.labels.get("priority") == "" for row in kept):
        kept = [row for row in kept if row.labels.get("priority", "") == ""]
    groups: dict[frozenset[tuple[str, str]], float] = {}
    for row in kept:
        group = frozenset(item for item in row.labels.items() if item[0] not in REPEATED)
        groups[group] = max(row.value, groups.get(group, -math.inf))
    if not groups:
        return None
    match rule.across:
        case Across.SUM:
            return sum(groups.values())
        case Across.MAX:
            return max(groups.values())
        case Across.MEAN:
            return sum(groups.values()) / len(groups)
