"""The servers that requests may go to now, and how many of ours each has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from backend.job.replica import Endpoint


@dataclass(slots=True)
class ReplicaTally:
    """What the driver knows of one life of one replica."""

    endpoint: Endpoint
    in_flight: int = 0
    answered: int = 0


@dataclass(slots=True)
class ServerPool:
    """Requests go to the one that has the fewest of ours."""

    replicas: dict[str, ReplicaTally] = field(default_factory=dict)
    _ready: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_ready(self) -> bool:
        """Whether any server is."""
        return self._ready.is_set()

    def set(self, endpoints: Sequence[Endpoint]) -> None:
        """The servers that are ready now; one that was there before keeps its counts."""
        known = {tally.endpoint.launch: tally for tally in self.replicas.values()}
        self.replicas = {e.replica: known.get(e.launch) or ReplicaTally(e) for e in endpoints}
        if endpoints:
            self._ready.set()
        else:
            self._ready.clear()

    async def least_busy(self) -> ReplicaTally:
        """The server for the next request; waits until there is one."""
        while not self._ready.is_set():
            await self._ready.wait()
        return min(self.replicas.values(), key=lambda tally: tally.in_flight)
