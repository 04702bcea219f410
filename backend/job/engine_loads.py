"""What an engine's JSON endpoints say of its load: `/v1/loads`, its elder `/get_load`, and `/server_info`. Pure: parsed
JSON in, values out. What a server (an older one, above all) does not tell is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

# Where in `decode_moments` the tokens are that decode steps have made since the start.
GENERATED: Final = 5


class UnexpectedAnswerError(ValueError):
    """An endpoint answered something else than SGLang does; the message says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """The load of an engine, its data-parallel ranks together. Counters are of the server's present life."""

    running: float | None = None  # requests
    queued: float | None = None  # requests
    token_usage: float | None = None  # 0..1; the fullest rank
    kv_capacity_tokens: float | None = None
    max_running_requests: float | None = None
    generated_tokens: float | None = None  # live; a lower bound while prefills come between the decode steps
    prefilled_tokens: float | None = None  # live; prompt tokens computed
    heartbeat_age_s: float | None = None  # since the slowest rank's scheduler published; old while paused is normal
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What `/server_info` tells that does not change while a server lives."""

    version: str | None = None
    max_running_requests: float | None = None
    kv_capacity_tokens: float | None = None


def read_loads(answer: Any, now: float) -> EngineLoad:
    """`/v1/loads`. `now` (epoch seconds) is used only where the answer lacks its own time.

    The heartbeat is each rank's own `timestamp`: the one of the whole answer is always fresh. Their difference is the
    age by the server's clock, whatever ours says. Raises UnexpectedAnswerError.
    """
    ranks = answer.get("loads") if isinstance(answer, dict) else None
    if not isinstance(ranks, list) or not all(isinstance(rank, dict) for rank in ranks):
        raise UnexpectedAnswerError(f"/v1/loads answered no list of loads but {_short(answer)}")
    answered_at = _epoch(answer.get("timestamp"))
    beats = [beat for rank in ranks if (beat := _number(rank.get("timestamp"))) is not None]
    age = max(0.0, (now if answered_at is None else answered_at) - min(beats)) if beats else None
    return EngineLoad(
        running=_sum(ranks, "num_running_reqs"),
        queued=_sum(ranks, "num_waiting_reqs"),
        token_usage=max((u for rank in ranks if (u := _number(rank.get("token_usage"))) is not None), default=None),
        kv_capacity_tokens=_sum(ranks, "max_total_num_tokens"),
        max_running_requests=_sum(ranks, "max_running_requests"),
        generated_tokens=_generated(ranks),
        prefilled_tokens=_sum(ranks, "total_prefill_uncached_tokens"),
        heartbeat_age_s=age,
        version=_text(answer.get("version")),
    )


def read_get_load(answer: Any) -> EngineLoad:
    """`/get_load` of servers before `/v1/loads`: requests only, `num_reqs` being running and waiting together.

    The oldest said one number for both: then nothing is known. Raises UnexpectedAnswerError.
    """
    if isinstance(answer, dict) and "load" in answer:
        return EngineLoad()
    ranks = [answer] if isinstance(answer, dict) else answer
    if not isinstance(ranks, list) or not all(isinstance(rank, dict) for rank in ranks):
        raise UnexpectedAnswerError(f"/get_load answered no list of loads but {_short(answer)}")
    both, queued = _sum(ranks, "num_reqs"), _sum(ranks, "num_waiting_reqs")
    running = None if both is None or queued is None else max(0.0, both - queued)
    return EngineLoad(running=running, queued=queued)


def read_server_info(answer: Any) -> ServerInfo:
    """`/server_info`, or `/get_server_info` of older servers. Raises UnexpectedAnswerError."""
    if not isinstance(answer, dict):
        raise UnexpectedAnswerError(f"/server_info answered no object but {_short(answer)}")
    states = answer.get("internal_states")
    ranks = [rank for rank in states if isinstance(rank, dict)] if isinstance(states, list) else []
    memory = [rank["memory_usage"] for rank in ranks if isinstance(rank.get("memory_usage"), dict)]
    running = _sum(ranks, "effective_max_running_requests_per_dp")
    capacity = _sum(memory, "token_capacity")
    return ServerInfo(
        version=_text(answer.get("version")),
        max_running_requests=_number(answer.get("max_running_requests")) if running is None else running,
        kv_capacity_tokens=_number(answer.get("max_total_num_tokens")) if capacity is None else capacity,
    )


def _generated(ranks: list[dict[str, Any]]) -> float | None:
    """Tokens generated; a rank that has not decoded yet says null, an older server does not know the field."""
    total = None
    for rank in ranks:
        if "decode_moments" in rank:
            moments = rank["decode_moments"]
            made = _number(moments[GENERATED]) if isinstance(moments, list) and len(moments) > GENERATED else None
            total = (total or 0.0) + (made or 0.0)
    return total


def _sum(ranks: list[dict[str, Any]], name: str) -> float | None:
    """Over the ranks; None unless all tell it."""
    values = [value for rank in ranks if (value := _number(rank.get(name))) is not None]
    return sum(values) if values and len(values) == len(ranks) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _epoch(value: Any) -> float | None:
    if not isinstance(value, str):
        return _number(value)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment.timestamp() if moment.tzinfo else None


def _short(answer: Any) -> str:
    text = repr(answer)
    return text if len(text) <= 80 else f"{text[:77]}..."
