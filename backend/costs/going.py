"""How long an API takes for what waits, and what it is paid for: K draws, the tail of the longest answers reckoned with.

While there is enough to do it works at its pace; at the end, or where all requests fit in at once, the longest answers run on
alone at the speed of one stream, and no limit can be bought away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from backend.costs.limits import ApiLimits, Binding, Pace, StreamSpeed, pace
from backend.costs.waiting import Waiting
from backend.forecast.chance import spread_normals, stream
from backend.forecast.lengths import LengthDraws
from backend.forecast.observation import EDGES_TOKENS, Floats

WIDTHS_TOKENS: Final[Floats] = np.diff(EDGES_TOKENS)
TAIL_SHARE: Final = 0.5  # of the time, beyond which the longest answer is what binds


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no single truth
class Going:
    """K draws of some datasets through one API, one after the other, each begun as the one before leaves room."""

    end_s: Floats
    tokens: Floats  # completion tokens
    binds: Binding


def draw_going(
    waiting: Sequence[Waiting], limits: ApiLimits, speed: StreamSpeed, prompt_tokens: Mapping[str, float | None]
) -> Going:
    """At least one dataset. `prompt_tokens`: mean of a prompt by dataset; unknown ones count against no limit."""
    draws = len(waiting[0].tokens)
    each = speed.tokens_per_s * np.exp(speed.log_sd * spread_normals(draws, stream(0, "api speed")))
    before, before_allowed, asked = np.zeros(draws), np.zeros(draws), np.zeros(draws)
    busy = dict.fromkeys((Binding.STREAMS, Binding.REQUESTS, Binding.TOKENS), 0.0)
    end_s, last_s = np.zeros(draws), np.zeros(draws)
    for one in waiting:
        going = pace(limits, each, speed.first_token_s, one.lengths.mean, prompt_tokens.get(one.name) or 0.0)
        asked = asked + one.requests
        at_once = asked <= going.streams
        luck = stream(0, "longest answer", one.name).permutation((np.arange(draws) + 0.5) / draws)
        longest = _longest_of(one, luck)
        tail_s = np.where(at_once, longest, np.minimum(_longest_left(one, going, luck), longest)) / each
        rest = np.maximum(one.tokens - going.streams * _age(one.lengths), 0.0)
        until_all_asked = np.where(at_once, 0.0, before + rest / going.tokens_per_s)
        before_allowed = before_allowed + one.tokens / going.allowed_per_s
        end = np.maximum(until_all_asked + tail_s + speed.first_token_s, before_allowed)
        end_s = np.maximum(end_s, end)
        last_s = np.where(end >= end_s, tail_s, last_s)
        busy[going.binds] += float(np.median(one.tokens / going.tokens_per_s))
        before = before + one.tokens / going.tokens_per_s
    alone = float(np.median(last_s)) > TAIL_SHARE * float(np.median(end_s))
    tokens = np.sum(np.stack([one.tokens for one in waiting]), axis=0)
    return Going(end_s, tokens, Binding.LONGEST if alone else max(busy, key=lambda binding: busy[binding]))


def _age(lengths: LengthDraws) -> Floats:
    """Mean tokens made by a request in flight, in the steady state: E[L²] / 2E[L]."""
    return np.asarray(lengths.square / (2 * np.maximum(lengths.mean, 1e-9)))


def _longest_of(one: Waiting, luck: Floats) -> Floats:
    """Length of the longest of N answers: it is below x with the chance (1 - S(x))^N."""
    below = (1 - one.lengths.survival).clip(0.0, 1.0) ** np.maximum(one.requests, 1.0)[:, None]
    return _where(below, luck, one.lengths.cap_tokens)


def _longest_left(one: Waiting, going: Pace, luck: Floats) -> Floats:
    """Tokens that the longest of the requests in flight still makes once nothing more is asked for.

    In the steady state a request has more than x left with the share R(x) = integral of S beyond x over E[L]; all of n such
    requests have less, with exp(-n R).
    """
    survival = one.lengths.survival
    area = (survival[:, :-1] + survival[:, 1:]) / 2 * WIDTHS_TOKENS
    beyond = np.concatenate([np.cumsum(area[:, ::-1], axis=1)[:, ::-1], np.zeros((len(area), 1))], axis=1)
    share = beyond / np.maximum(beyond[:, :1], 1e-9)
    return _where(np.exp(-going.streams[:, None] * share), luck, one.lengths.cap_tokens)


def _where(below: Floats, luck: Floats, most: float) -> Floats:
    """The length (K) at which the chance to be below it (K × edges, rising) comes to `luck` (K)."""
    rows = np.arange(len(below))
    after = np.clip((below < luck[:, None]).sum(axis=1), 1, below.shape[1] - 1)
    low, high = below[rows, after - 1], below[rows, after]
    part = np.clip((luck - low) / np.maximum(high - low, 1e-12), 0.0, 1.0)
    return np.asarray(np.minimum(EDGES_TOKENS[after - 1] + part * WIDTHS_TOKENS[after - 1], most))
