"""A server's slots as a discrete-event simulation: what admission decides, with lengths known to the simulation only.

All requests in flight decode at one speed, that of a batch of their number; time is simulated, runs take well under a second.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from backend.job.admission import DatasetAdmission, next_dataset


def tokens_per_s_each(in_flight: int) -> float:
    """Decode speed of one request in a batch: 62 tokens/s alone, 10 among 150."""
    return 1 / (0.01557 + 0.000563 * in_flight)


@dataclass(slots=True)
class Source:
    """A dataset: its accounting, the lengths of its answers, and how many prompts it has left (None: endless)."""

    admission: DatasetAdmission
    draw_length: Callable[[], int]
    prompts: int | None = None
    now: float = 0.0
    speed_tokens_per_s: float | None = None  # what the server says of one request now; None: it says nothing

    @property
    def may_admit(self) -> bool:
        return self.admission.may_admit(self.now, self.speed_tokens_per_s)

    @property
    def prompt_ready(self) -> bool:
        return self.prompts != 0

    @property
    def samples_begun(self) -> int:
        return self.admission.finished_samples + self.admission.in_flight


@dataclass(slots=True)
class Simulated:
    """What a run came to. Times in seconds; slot seconds are integrals of slots over time."""

    duration_s: float = 0.0
    idle_slot_s: float = 0.0
    first_idle_s: float = 0.0  # when a free slot first found nothing to admit
    last_dataset_drains_s: float | None = None  # when the last dataset in order first had nothing to admit
    busy_slot_s_before: float = 0.0  # until then
    most_in_flight: dict[str, int] = field(default_factory=dict)


def run_slots(
    sources: Mapping[str, Source], concurrency: int, *, server_tells_speed: bool = True, pilot_samples: int = 0
) -> Simulated:
    """Fill `concurrency` slots from the sources in their order, until nothing is in flight."""
    result = Simulated(most_in_flight=dict.fromkeys(sources, 0))
    order = list(sources)
    last = sources[order[-1]]
    running: list[tuple[float, int, str, int]] = []  # (the made-tokens mark at which it ends, key, dataset, length)
    keys = itertools.count()
    now = made = 0.0  # made: tokens that a request running from the start on would have made
    was_idle = False
    while True:
        for source in sources.values():
            source.now = now
            if server_tells_speed and running:
                source.speed_tokens_per_s = tokens_per_s_each(len(running))
        while len(running) < concurrency:
            turn = next_dataset(order, sources, pilot_samples)
            if turn is None:
                break
            name = turn.dataset
            source = sources[name]
            if source.prompts is not None:
                assert source.prompts > 0, f"{name} was given a slot without a prompt"
                source.prompts -= 1
            length, key = source.draw_length(), next(keys)
            source.admission.started(key, now)
            heapq.heappush(running, (made + length, key, name, length))
            result.most_in_flight[name] = max(result.most_in_flight[name], source.admission.in_flight)
        if len(running) < concurrency and not was_idle:
            was_idle, result.first_idle_s = True, now
        if result.last_dataset_drains_s is None and not (last.may_admit and last.prompt_ready):
            result.last_dataset_drains_s = now
        if not running:
            result.duration_s = now
            return result
        step_s = (running[0][0] - made) / tokens_per_s_each(len(running))
        result.idle_slot_s += step_s * (concurrency - len(running))
        if result.last_dataset_drains_s is None:
            result.busy_slot_s_before += step_s * len(running)
        made, key, name, length = heapq.heappop(running)
        now += step_s
        sources[name].admission.finished(key, now, length)
