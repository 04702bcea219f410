"""PURE: "what if answers are longer, or the server is slower": a table of plain arithmetic, tokens left over speed.

It leaves out what a forecast reckons with (outages, the last requests running out), so that anybody can check it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from backend.forecast.forecast import Forecast
from backend.forecast.observation import Observation
from backend.forecast.sensitivity import sensitivity

MEANS: Final = (0.75, 1.0, 1.25)  # of the mean that is reckoned with
SPEEDS: Final = (0.9, 1.0, 1.2)  # of the speed
MEASURED: Final = 1  # which of them is as reckoned


@dataclass(frozen=True, slots=True)
class SensitivityTable:
    """Seconds for what is left: `seconds[i][j]` at `means_tokens[i]` and `speeds_tokens_per_s[j]`.

    `samples` are made at the mean; `budget_tokens` on top take as long whatever it is. A single mean where no samples are left.
    """

    means_tokens: tuple[float | None, ...]
    speeds_tokens_per_s: tuple[float, ...]
    seconds: tuple[tuple[float, ...], ...]
    samples: float
    budget_tokens: float
    measured_row: int
    measured_column: int = MEASURED


def sensitivity_of(observation: Observation, found: Forecast) -> SensitivityTable | None:
    """The table of a run as it is now; None where nothing can be said or nothing is left."""
    if found.assumptions is None:
        return None
    now = {dataset.name: dataset for dataset in observation.datasets}
    samples = tokens_of_samples = budget_tokens = 0.0
    for one in found.datasets:
        if one.budget_binds is None or one.remaining_tokens is None:
            continue
        if one.budget_binds > 0.5:
            budget_tokens += one.remaining_tokens.p50
        else:
            samples += max(now[one.name].prompts - now[one.name].finished_samples, 0.0)
            tokens_of_samples += one.remaining_tokens.p50
    if samples + budget_tokens <= 0:
        return None
    mean = tokens_of_samples / samples if samples > 0 else None
    return table_of(mean, found.assumptions.tokens_per_s.p50, samples=samples, budget_tokens=budget_tokens)


def table_of(mean_tokens: float | None, tokens_per_s: float, *, samples: float, budget_tokens: float = 0.0) -> SensitivityTable:
    """The table about a mean and a speed. Raises ValueError unless the speed is above 0."""
    speeds = tuple(tokens_per_s * factor for factor in SPEEDS)
    means = (None,) if mean_tokens is None else tuple(mean_tokens * factor for factor in MEANS)
    seconds = tuple(
        tuple(sensitivity(mean or 0.0, speed, samples) + sensitivity(1.0, speed, budget_tokens) for speed in speeds)
        for mean in means
    )
    return SensitivityTable(means, speeds, seconds, samples, budget_tokens, MEASURED if len(means) > 1 else 0)
