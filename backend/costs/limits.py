"""How fast an API lets one go: s tokens a second in each answer, so many answers at once, requests and tokens a minute.

T(n) = s · n: unlike a server of one's own an API does not slow down with more requests; what ends its speed is a limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from backend.forecast.observation import Floats

MINUTE_S: Final = 60.0


class Binding(StrEnum):
    """What keeps an API from being faster."""

    STREAMS = "requests at once"
    REQUESTS = "requests a minute"
    TOKENS = "tokens a minute"
    LONGEST = "the longest answer"  # by itself, however many run beside it
    BOX = "what is in flight on the box"  # and finishes there


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """What an API allows. None: no such limit is known."""

    streams: int  # requests at once
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None  # of prompts and completions together


@dataclass(frozen=True, slots=True)
class StreamSpeed:
    """How fast one answer comes."""

    tokens_per_s: float  # s
    log_sd: float  # of s: how far it may be off
    first_token_s: float = 0.0  # before the first token


@dataclass(frozen=True, slots=True)
class Pace:
    """K draws of the speed while there is enough to do."""

    tokens_per_s: Floats  # completion tokens, of all answers together
    streams: Floats  # answers at once that this takes, by Little's law
    allowed_per_s: Floats  # completion tokens/s that the limits by the minute allow; inf without any
    binds: Binding  # in the median


def pace(
    limits: ApiLimits, stream_tokens_per_s: Floats, first_token_s: float, mean_tokens: Floats, prompt_tokens: float
) -> Pace:
    """The speed for answers of `mean_tokens` (K) to prompts of `prompt_tokens`, each at `stream_tokens_per_s` (K).

    By streams n·L / (L/s + t), by requests RPM/60·L, by tokens TPM/60·L / (L + p): the least of them.
    """
    mean = np.maximum(mean_tokens, 1.0)
    answer_s = mean / stream_tokens_per_s + first_token_s
    by_streams = limits.streams * mean / answer_s
    unlimited = np.full(len(mean), np.inf)
    by_requests = unlimited if limits.requests_per_minute is None else limits.requests_per_minute / MINUTE_S * mean
    by_tokens = (
        unlimited
        if limits.tokens_per_minute is None
        else limits.tokens_per_minute / MINUTE_S * mean / (mean + max(prompt_tokens, 0.0))
    )
    allowed = np.minimum(by_requests, by_tokens)
    speed = np.minimum(by_streams, allowed)
    medians = {
        Binding.STREAMS: float(np.median(by_streams)),
        Binding.REQUESTS: float(np.median(by_requests)),
        Binding.TOKENS: float(np.median(by_tokens)),
    }
    return Pace(speed, speed * answer_s / mean, allowed, min(medians, key=lambda each: medians[each]))
