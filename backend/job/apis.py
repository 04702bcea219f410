"""The APIs of a run, for its supervisor: opened with what former lives spent, kept to what is wanted, probed, told about."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import aiohttp
import pyarrow as pa

from backend.config import RunConfig
from backend.job.api_billing import ApiBilling, unsure_fact
from backend.job.api_in_flight import read_noted
from backend.job.api_key import read_key
from backend.job.api_probe import ProbeOrder, figures, read_order, sentence, share_out
from backend.job.api_route import ApiRoute
from backend.job.api_slots import ApiSlots
from backend.job.api_spent import Spent, lengths_of_engine, spent_so_far
from backend.job.api_tokens import TokenGuess
from backend.job.bulletin import Bulletin
from backend.job.conditions import Condition
from backend.job.dataset_runner import DatasetRunner
from backend.job.in_flight import InFlightJournal
from backend.job.ledger import Ledger
from backend.job.rates import Window
from backend.job.reconcile import ENDED
from backend.job.routes import LOCAL
from backend.job.slots import Slots
from backend.job.spend import Spend, projected_usd
from backend.job.state_store import StateStore
from backend.job.wishes import RefusedError, Want, Wishes
from backend.prices.lookup import prices_of
from backend.probes import create_table, write
from backend.records import ApiState, ApiStatus, Intent, IntentAction, Severity
from backend.run_dir import RunDir

log = logging.getLogger(__name__)

RATE_WINDOW_S: Final = 60.0
PROBE_READS_EVERY_S: Final = 0.2
BILLS_WITHIN_S: Final = 15.0


class Apis:
    """All APIs that run.toml names. Without any, everything here does nothing."""

    def __init__(
        self,
        run: RunDir,
        config: RunConfig,
        *,
        runners: Mapping[str, DatasetRunner],
        ledger: Ledger,
        journal: InFlightJournal,
        session: aiohttp.ClientSession,
        engine: Slots,
        store: StateStore,
        bulletin: Bulletin,
    ) -> None:
        """`engine`: the requests that go to the engine's servers; its tally is shared, so that rates are of the whole run."""
        self._run, self._config, self._runners, self._ledger, self._journal = run, config, runners, ledger, journal
        self._session, self._engine, self._store, self._bulletin = session, engine, store, bulletin
        self.slots: dict[str, ApiSlots] = {}
        self._rates = {name: Window(RATE_WINDOW_S) for name in config.api}
        self._former: dict[str, Spent] = {}
        self._probe: asyncio.Task[None] | None = None

    # -- life --------------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Before the journal of the former life is cleared: what it had in flight may have been billed."""
        if not self._config.api:
            return
        try:
            self._former = await asyncio.to_thread(spent_so_far, self._run, self._config.api)
        except pa.ArrowException as error:
            raise OSError(f"What was spent at APIs cannot be read from the shards: {error}") from error
        guess = TokenGuess(self._config.model.path)
        for name, config in self._config.api.items():
            unsure = await self._unsure(name)
            spent = self._former[name]
            spend = Spend(config.spend_cap_usd, spent_usd=spent.usd, unsure_usd=unsure)
            prices = prices_of(config, datetime.now(UTC))
            route = ApiRoute(
                name, config, prices, spend=spend, guess=guess, read_key=partial(read_key, config, os.environ, self._run.root)
            )
            route.counts.finished, route.counts.completion_tokens = spent.samples, spent.completion_tokens
            route.counts.unpriced = spent.unpriced
            billing = ApiBilling(route, self._ledger, self._journal, self._session, time.time)
            self.slots[name] = ApiSlots(
                driver=self._config.driver,
                runners=self._runners,
                ledger=self._ledger,
                journal=self._journal,
                session=self._session,
                model=config.model,
                now=time.time,
                concurrency=1,
                order=self._engine.order,
                on_idle=self._engine.on_idle,
                tally=self._engine.tally,
                route=route,
                billing=billing,
            )

    async def _unsure(self, name: str) -> float:
        """What broke off in former lives, with what the last one had in flight when it was killed."""
        left: dict[str, float] = {}
        for rid, word in self._journal.requests().items():
            noted = read_noted(word)
            if noted is None or noted.api != name:
                continue
            is_kept = self._ledger.next_attempt(noted.dataset, noted.sample_id) > noted.attempt
            left[rid] = 0.0 if is_kept else noted.usd
        unsure = float(self._ledger.get_fact(unsure_fact(name)) or 0.0) + sum(left.values())
        if left:
            await self._ledger.set_fact(unsure_fact(name), repr(unsure))
            for rid in left:
                self._journal.remove(rid)
            text = f"{name}: {len(left)} requests were in flight when the former supervisor ended; they are made again."
            if any(left.values()):
                text += f" Up to ${sum(left.values()):.4f} may have been billed for them, and count against the cap."
            self._bulletin.tell("api.former_requests", f"api:{name}", text)
        return unsure

    def works(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """What has to run beside the supervisor's second."""
        return [slots.run for slots in self.slots.values()]

    async def close(self) -> None:
        """Ends every request, and books what they may have cost."""
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.gather(self._probe, return_exceptions=True)
        await asyncio.gather(*(slots.close() for slots in self.slots.values()))
        await asyncio.gather(*(slots.billing.close() for slots in self.slots.values()))

    # -- what is wanted ----------------------------------------------------------------------------------------------------

    def update(self, wishes: Wishes, *, admitting: bool) -> None:
        """Each second, and when something else is wanted."""
        self._tell_failed_probe()
        for name, runner in self._runners.items():
            sources = wishes.datasets[name].route.sources
            if sources != runner.sources:
                runner.sources, runner.mixed = sources, None
                for place in (self._engine, *self.slots.values()):
                    if not place.may_take(runner):
                        place.abort(name, only_waiting=True)
                    place.changed()
        for name, slots in self.slots.items():
            slots.order, slots.admitting = wishes.order, admitting
            slots.route.spend.cap_usd = wishes.api_caps[name]
            if not self._is_used(name, wishes) and slots.route.probe is None:
                slots.route.not_wanted()
            for dataset, runner in self._runners.items():
                if not runner.open or wishes.run is Want.STOPPED:
                    slots.abort(dataset, only_waiting=True)
            slots.changed()

    def abort(self, dataset: str) -> None:
        """Requests of a dataset end; what they have cost by then is booked."""
        for slots in self.slots.values():
            slots.abort(dataset)

    def abort_one(self, dataset: str, sample_id: str) -> None:
        """One request ends."""
        for slots in self.slots.values():
            slots.abort_one(dataset, sample_id)

    def check(self, intent: Intent) -> None:
        """Raises RefusedError where what is asked cannot be now."""
        if intent.action is IntentAction.PROBE and self._probe is not None and not self._probe.done():
            raise RefusedError("A probe is under way: wait until it has ended.")

    def accepted(self, intent: Intent) -> None:
        """Somebody wants something: what an API refused us for may be mended by now."""
        for slots in self.slots.values():
            slots.route.try_now()
        if intent.action is IntentAction.PROBE:
            self._probe = asyncio.create_task(self._carry_out(intent))

    # -- probe -------------------------------------------------------------------------------------------------------------

    async def _carry_out(self, intent: Intent) -> None:
        while intent.value["api"] not in self.slots:  # asked before they are open
            await asyncio.sleep(PROBE_READS_EVERY_S)
        slots = self.slots[intent.value["api"]]
        prompts, cap_usd = read_order(intent.value)
        order = ProbeOrder(prompts, Spend(cap_usd), self._share_out(prompts), intent.who)
        slots.route.probe = order
        try:
            while not order.is_over:
                slots.changed()
                self._look_for_prompts(order)
                await asyncio.sleep(PROBE_READS_EVERY_S)
            await _billed(order)
            await self._tell(slots, order)
        finally:
            slots.route.probe = None

    def _share_out(self, prompts: int) -> dict[str, int]:
        """Of each dataset that is not at its end; how many prompts wait is known of those that are read to their end."""
        names = [n for n in self._engine.order if self._runners[n].state not in ENDED and self._runners[n].open]
        known = {n: self._runners[n].buffered() if not self._runners[n].wants_prompts else None for n in names}
        return share_out(prompts, known)

    def _look_for_prompts(self, order: ProbeOrder) -> None:
        """A dataset that has no prompt left, or is stopped meanwhile, gives no more."""
        for name, left in order.quotas.items():
            runner = self._runners[name]
            if left and (runner.exhausted or not runner.open or runner.state in ENDED):
                order.quotas[name] = 0
        if not any(order.quotas.values()) and order.asked < order.prompts:
            order.end("no further prompt waits")
        if self._stopped():
            order.end("the run stops")

    def _stopped(self) -> bool:
        return not any(slots.admitting for slots in self.slots.values())

    async def _tell(self, slots: ApiSlots, order: ProbeOrder) -> None:
        flying = [request.started_at for request in self._engine.requests.values()]
        datasets = {answer.dataset for answer in order.answers}
        local = await asyncio.to_thread(lengths_of_engine, self._run, datasets, min(flying, default=time.time()))
        route, limits = slots.route, slots.route.rate.view(slots.route.clock())
        probe = figures(
            order,
            local,
            api=route.name,
            model=route.config.model,
            answered_model=route.answered_model,
            at=time.time(),
            limits=(limits.requests_per_minute, limits.tokens_per_minute),
        )

        def keep(con: Any) -> None:
            create_table(con)
            write(con, probe)

        await self._store.run(keep)
        self._bulletin.tell("api.probed", f"api:{route.name}", sentence(probe, order.ended, order.spend.view()), who=order.who)

    def _tell_failed_probe(self) -> None:
        probe = self._probe
        if probe is None or not probe.done() or probe.cancelled() or (error := probe.exception()) is None:
            return
        self._probe = None
        log.error("the probe failed", exc_info=error)
        words = f"The probe failed ({error}): an error in Headway itself, logs/supervisor.log has it. Its samples are kept."
        self._bulletin.tell("api.probe_failed", "run", words, Severity.ERROR)

    # -- what is told ------------------------------------------------------------------------------------------------------

    def conditions(self, wishes: Wishes) -> Iterator[Condition]:
        """What a person should know."""
        for name, slots in self.slots.items():
            state, reason = slots.route.state()
            used = self._is_used(name, wishes) or slots.route.probe is not None
            shut = used and state in (ApiState.PAUSED, ApiState.CAPPED)
            words = f"{name} gets no requests: {_steady(reason)}" if shut and reason else None
            over = f"{name} gets requests again." if used else f"Nothing that is left is sent to {name}."
            yield Condition("api.paused", f"api:{name}", words, over)
        yield Condition("engine.idle", "engine", self._idle_words(wishes), "Requests go to the engine again.")

    def _idle_words(self, wishes: Wishes) -> str | None:
        if not self.slots or not routed_away(wishes, self._runners) or self._engine.in_flight():
            return None
        if wishes.engine is not Want.RUNNING:
            return None
        return "Every dataset that is left is routed to an API: the engine idles. `engine RUN stop` frees its GPUs meanwhile."

    def status(self, wishes: Wishes) -> tuple[ApiStatus, ...]:
        """All of them; rates are over the last minute."""
        return tuple(self._status(name, slots, wishes) for name, slots in self.slots.items())

    def _status(self, name: str, slots: ApiSlots, wishes: Wishes) -> ApiStatus:
        route, now = slots.route, time.time()
        view, limits, counts = route.spend.view(), route.rate.view(route.clock()), route.counts
        self._rates[name].add(now, counts.finished, counts.completion_tokens, view.spent_usd)
        rates = self._rates[name].rates()
        state, reason = route.state()
        if state is ApiState.OPEN and not self._is_used(name, wishes) and route.probe is None and not slots.requests:
            state, reason = ApiState.IDLE, None
        priced = counts.finished > counts.unpriced or view.spent_usd > 0 or not counts.finished
        return ApiStatus(
            name=name,
            state=state,
            reason=reason,
            model=route.answered_model,
            provider=route.provider,
            in_flight=slots.in_flight(),
            concurrency=limits.concurrency,
            finished_samples=counts.finished,
            completion_tokens=counts.completion_tokens,
            spent_usd=view.spent_usd if priced else None,
            unsure_usd=view.unsure_usd,
            reserved_usd=view.reserved_usd,
            cap_usd=view.cap_usd,
            unpriced=counts.unpriced,
            usd_per_minute=rates[2] * 60 if rates and priced else None,
            tokens_per_s=rates[1] if rates else None,
            projected_usd=self._projected_usd(name, view.spent_usd, counts.completion_tokens) if priced else None,
            requests_per_minute=limits.requests_per_minute,
            tokens_per_minute=limits.tokens_per_minute,
            refused=counts.refused,
            probing=route.probe is not None,
        )

    def _projected_usd(self, name: str, spent_usd: float, tokens: int) -> float | None:
        """With all that is left of the datasets that are routed there, also where the engine makes a part of it."""
        left = [
            tokens_left(runner) for runner in self._runners.values() if name in runner.sources and runner.state not in ENDED
        ]
        known = [one for one in left if one is not None]
        return projected_usd(spent_usd, tokens, sum(known)) if len(known) == len(left) else None

    def stream_speed(self, runner: DatasetRunner, engine_tokens_per_s: float | None) -> float | None:
        """Tokens a second of one request of a dataset, for its budget; None where it is not known."""
        if LOCAL in runner.sources:
            return engine_tokens_per_s  # where both work on it, that of a part of its requests
        apis = [self.slots[name].route.rate.stream_tokens_per_s for name in runner.sources if name in self.slots]
        return apis[0] if apis else None

    def work_is_left(self, wishes: Wishes) -> bool:
        """Whether something that is left to make is routed to an API."""
        return any(self._is_used(name, wishes) for name in self.slots)

    def _is_used(self, name: str, wishes: Wishes) -> bool:
        return any(
            name in wishes.datasets[dataset].route.sources and runner.state not in ENDED
            for dataset, runner in self._runners.items()
        )


def routed_away(wishes: Wishes, runners: Mapping[str, DatasetRunner]) -> bool:
    """Whether something is left to make and nothing of it goes to the engine."""
    left = [wishes.datasets[name].route for name, runner in runners.items() if runner.state not in ENDED]
    return bool(left) and not any(route.local for route in left)


def tokens_left(runner: DatasetRunner) -> float | None:
    """Completion tokens that a dataset has still to make, expected; None where no limit tells how many samples it will have."""
    admission = runner.admission
    limits = admission.limits
    totals = [limit for limit in (limits.max_samples, runner.prompts) if limit is not None]
    by_samples = (min(totals) - admission.finished_samples) * admission.mean_tokens if totals else None
    by_budget = limits.token_budget - admission.finished_tokens if limits.token_budget is not None else None
    known = [left for left in (by_samples, by_budget) if left is not None]
    return max(0.0, min(known)) if known else None


async def _billed(order: ProbeOrder) -> None:
    """Until the bills of what made no sample are there; one that does not come stays a reservation."""
    until = time.monotonic() + BILLS_WITHIN_S
    while order.spend.in_flight and time.monotonic() < until:
        await asyncio.sleep(PROBE_READS_EVERY_S)


def _steady(reason: str | None) -> str:
    """Without what changes each second: a condition is told once."""
    return (reason or "").partition(" (tried again")[0].partition(" (being tried")[0]
