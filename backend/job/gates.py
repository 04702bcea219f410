"""Opens and closes what requests go through, each second and when something else is wanted: which datasets admit, up to which
limits, how many requests, to which servers.

What is wanted is `wishes.py`'s, who gets a free slot `admission.py`'s.
"""

from __future__ import annotations

from backend.job.crew import Crew
from backend.job.dataset_runner import limits_of
from backend.job.wishes import Want, Wishes
from backend.records import DatasetState


class Gates:
    """Of one run."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew

    def set(self, wishes: Wishes, *, open_for_all: bool) -> None:
        """As wanted; `open_for_all`: nothing stands against admission as such (the disk, the end of the run)."""
        crew, slots = self._crew, self._crew.slots
        slots.concurrency, slots.order = crew.sweeper.concurrency(wishes.concurrency), wishes.order
        slots.admitting = open_for_all and wishes.run is Want.RUNNING
        speed = self._request_speed()
        for name, runner in crew.runners.items():
            wish = wishes.datasets[name]
            runner.request_speed_tokens_per_s = crew.apis.stream_speed(runner, speed)
            runner.open = wish.want is Want.RUNNING and runner.state is not DatasetState.HELD
            runner.set_cap(wish.max_new_tokens)
            if runner.admission.limits != limits_of(wish):
                runner.admission.set_limits(limits_of(wish))
            if not runner.open or wishes.run is Want.STOPPED:
                slots.abort(name, only_waiting=True)
        endpoints = [keeper.endpoint for keeper in crew.keepers]
        slots.set_endpoints([endpoint for endpoint in endpoints if endpoint is not None])
        slots.changed()
        crew.apis.update(wishes, admitting=slots.admitting)

    def _request_speed(self) -> float | None:
        """Tokens a second of one request, over all that are in flight; None while a counter is not known."""
        crew = self._crew
        if all(keeper.endpoint is None for keeper in crew.keepers):
            return 0.0  # nothing is made without a server
        samples = [keeper.sample for keeper in crew.keepers if keeper.endpoint is not None]
        speeds = [None if sample is None else sample.decode_tokens_per_s for sample in samples]
        known = [speed for speed in speeds if speed is not None]
        if not known or len(known) != len(speeds) or not crew.slots.in_flight():
            return None
        return sum(known) / crew.slots.in_flight()
