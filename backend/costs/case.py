"""What is compared: how a run is, what its box costs, what is known of its texts, and an API with its prices and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from backend.costs.limits import ApiLimits, StreamSpeed
from backend.costs.prices import Prices
from backend.costs.staying import Box
from backend.forecast.calibrate import BUILT_IN, Calibration
from backend.forecast.observation import Observation


@dataclass(frozen=True, slots=True)
class Api:
    """One way out: an API with its prices, limits and speed."""

    name: str
    model: str
    prices: Prices
    limits: ApiLimits
    speed: StreamSpeed
    cached_share: float = 0.0  # of the prompt tokens, that it is expected to find in its cache


@dataclass(frozen=True, slots=True)
class Texts:
    """What is known of the texts beside the lengths of completions, by dataset."""

    prompt_tokens: Mapping[str, float | None] = field(default_factory=dict)  # mean of a prompt
    reasoning_share: Mapping[str, float | None] = field(default_factory=dict)  # of the completion tokens, 0..1


@dataclass(frozen=True, slots=True)
class Case:
    """What is compared: how the run is, what the box costs, what is known of the texts."""

    observation: Observation
    box: Box = field(default_factory=Box)
    texts: Texts = field(default_factory=Texts)
    calibration: Calibration = BUILT_IN
