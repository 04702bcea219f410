"""Whether one life of a server still makes tokens: measures it, and feeds what that shows to stall.py and alarms.py.

What follows from it is `replica_keeper.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable

import aiohttp

from backend.job.alarms import ThroughputWatch
from backend.job.engine_probe import EngineProbe
from backend.job.replica import Endpoint
from backend.job.stall import StallWatch, Verdict
from backend.telemetry import EngineSample


class LifeWatch:
    """Watches the life that answers at `endpoint`, from when it is ready."""

    def __init__(self, session: aiohttp.ClientSession, endpoint: Endpoint, *, replica: str, stall_after_s: float) -> None:
        self.launch = endpoint.launch
        self.in_flight = 0  # at the last look
        self.throughput_problem: str | None = None
        self._probe = EngineProbe(session, endpoint.base_url, key=replica, api_key=endpoint.api_key)
        self._probe.begin_life(endpoint.launch)
        self._stall = StallWatch(stall_after_s)
        self._throughput = ThroughputWatch()

    async def look(
        self,
        now: float,
        *,
        every_s: float,
        clock: Callable[[], float],
        in_flight_and_answered: Callable[[], tuple[int, int]],
    ) -> tuple[EngineSample, Verdict]:
        """One look of those that come each `every_s` seconds. `now`: epoch seconds; `clock` is never set."""
        sample = await self._probe.probe(now)
        self.in_flight, answered = in_flight_and_answered()
        self.throughput_problem = self._throughput.feed(every_s, sample.decode_tokens_per_s, self.in_flight)
        verdict = self._stall.feed(
            clock(),
            in_flight=self.in_flight,
            generated_tokens=_sum(sample.generated_tokens, sample.prefilled_tokens),
            answered=answered,
            engine_requests=_whole(_sum(sample.running, sample.queued)),
        )
        return sample, verdict


def _sum(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
