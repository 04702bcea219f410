"""One API at work: whether and when the next request may go there, and what is known of it. Decides; `api_courier.py` sends.

It is shut while the key or the balance is refused (tried again with one request now and then), while nothing more fits below
the cap, and while the API has asked to wait. Times are seconds of a clock that does not go back.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from backend.config import ApiConfig, SamplingConfig
from backend.costs.prices import Prices
from backend.job.api_bill import ApiUsage, billed_usd, listed_usd, prompt_tokens_at_most, worst_usd
from backend.job.api_driver import Exchange, TooManyError, api_body
from backend.job.api_key import NoKeyError
from backend.job.api_probe import ProbeOrder
from backend.job.api_rate import ApiRate, resource_of
from backend.job.api_tokens import TokenGuess
from backend.job.same_model import is_same_model
from backend.job.spend import Spend
from backend.records import ApiState, Prompt

FIRST_TRY_AFTER_S: Final = 5.0  # of a route that was refused; doubles
LAST_TRY_AFTER_S: Final = 300.0
LOOK_AGAIN_S: Final = 1.0  # while only a change somewhere else can open it
FRUITLESS_LOOKUPS: Final = 3  # bills that could not be had by an id: then no further one is asked for
RATIO_TOLERANCE: Final = 1.001


@dataclass(slots=True)
class Ticket:
    """The leave to send one request, with its reservation."""

    rid: str
    body: bytes
    prompt_tokens: int  # expected
    prompt_tokens_bound: int
    worst_usd: float | None  # None: not bounded
    started_at: float
    probe: ProbeOrder | None = None


@dataclass(slots=True)
class ApiCounts:
    """Since the supervisor's start, but for the first two."""

    finished: int = 0  # durable samples of all lives
    completion_tokens: int = 0
    unpriced: int = 0  # answers whose cost is unknown
    refused: int = 0  # 429
    failed: int = 0  # attempts that broke off or were answered with a fault that may pass


class ApiRoute:
    """What is known of one API, and the leave to ask it. Belongs to the event loop."""

    def __init__(
        self,
        name: str,
        config: ApiConfig,
        prices: Prices,
        *,
        spend: Spend,
        guess: TokenGuess,
        read_key: Callable[[], str | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.config, self.prices, self.spend, self.guess = name, config, prices, spend, guess
        self.rate = ApiRate(
            concurrency=config.concurrency,
            requests_per_minute=config.requests_per_minute,
            tokens_per_minute=config.tokens_per_minute,
        )
        self.counts = ApiCounts()
        self.failures: dict[tuple[str, str], int] = {}  # tries of a sample that failed
        self.probe: ProbeOrder | None = None
        self.answered_model: str | None = None
        self.provider: str | None = None
        self.can_look_up = True
        self.wake_at: float | None = None  # when to look again whether the next request may go
        self.clock = clock
        self._read_key = read_key
        self._denied: str | None = None  # why it refuses us
        self._retry_at = 0.0
        self._retry_after_s = FIRST_TRY_AFTER_S
        self._trial: str | None = None  # the one request that may find out whether it does so still
        self._capped: str | None = None
        self._price_ratio = 1.0  # how much dearer it was than its prices say, at most
        self._fruitless = 0

    # -- whether the next request may go -----------------------------------------------------------------------------------

    def key(self) -> str | None:
        """The key as it is now. Raises NoKeyError."""
        return self._read_key()

    def admit(self, prompt: Prompt, sampling: SamplingConfig, probe: ProbeOrder | None = None) -> Ticket | None:
        """The leave to send this prompt now, with its reservation; None: not now, `wake_at` says when to ask again."""
        now = self.clock()
        if self._is_shut(now):
            return None
        body = api_body(prompt, sampling, self.config)
        bound = prompt_tokens_at_most(body, len(prompt.messages), tools=prompt.tools is not None)
        expected = min(self.guess.of_prompt(len(body)), bound)
        at = self.rate.next_start_at(now, expected)
        if at > now:
            self.wake_at = at
            return None
        worst = worst_usd(bound, sampling.max_new_tokens, self.prices)
        ticket = Ticket(secrets.token_hex(16), body, expected, bound, worst, now, probe)
        if not self._reserve(ticket, prompt.dataset):
            self.wake_at = now + LOOK_AGAIN_S
            return None
        if self._denied is not None:
            self._trial = ticket.rid
        self.rate.started(now, expected)
        return ticket

    def _is_shut(self, now: float) -> bool:
        if self._denied is None:
            return False
        self.wake_at = now + LOOK_AGAIN_S
        if self._trial is not None or now < self._retry_at:
            return True
        try:
            self._read_key()
        except NoKeyError as error:
            self._deny(str(error), now)
            return True
        return False

    def _reserve(self, ticket: Ticket, dataset: str) -> bool:
        probe = ticket.probe
        bounded = self.spend.cap_usd is not None or probe is not None
        if bounded and ticket.worst_usd is None:
            self._capped = self._unbounded(dataset)
            if probe is not None:
                probe.end(self._capped)
            return False
        worst = (ticket.worst_usd or 0.0) * self._price_ratio
        if probe is not None and not probe.spend.fits(worst):
            probe.is_spent()
            return False
        if not self.spend.reserve(ticket.rid, worst):
            self._capped = self._cap_words(worst)
            return False
        if probe is not None:
            probe.spend.reserve(ticket.rid, worst)
        self._capped = None
        return True

    def _unbounded(self, dataset: str) -> str:
        if not self.prices.known:
            return (
                f"what {self.config.model} costs is not known, so that no cap could be kept: write input_usd_per_mtok and "
                f"output_usd_per_mtok into [api.{self.name}], or take spend_cap_usd out"
            )
        return (
            f"{dataset} has no cap on new tokens, so that one answer could cost anything: set {dataset}.max_new_tokens, or "
            f"take spend_cap_usd out of [api.{self.name}]"
        )

    def _cap_words(self, worst: float) -> str:
        view = self.spend.view()
        unsure = f" and up to ${view.unsure_usd:.4f} more for answers that broke off" if view.unsure_usd else ""
        if self.spend.in_flight:
            return f"close to its cap of ${view.cap_usd:g}: fewer requests at once, so that their worst case fits below it"
        return (
            f"its cap of ${view.cap_usd:g} is reached: ${view.spent_usd:.4f} are spent{unsure}, and the next request could "
            f"cost ${worst:.4f}. Raise it with: set RUN api.{self.name}.spend_cap_usd=USD, or route what is left to local"
        )

    # -- what came of a request --------------------------------------------------------------------------------------------

    def release(self, ticket: Ticket) -> None:
        """It was never sent, or certainly not billed."""
        self.settle(ticket, 0.0)

    def settle(self, ticket: Ticket, billed_usd_: float, *, at_most_usd: float | None = None) -> float:
        """Its reservation becomes what it has cost. Returns what it may have cost beyond."""
        if ticket.probe is not None and ticket.probe.spend.is_reserved(ticket.rid):
            ticket.probe.spend.settle(ticket.rid, billed_usd_, at_most_usd=at_most_usd)
        if self._trial == ticket.rid:
            self._trial = None
        return self.spend.settle(ticket.rid, billed_usd_, at_most_usd=at_most_usd)

    def accepted(self, headers: Mapping[str, str]) -> None:
        """HTTP 200: key and balance are in order."""
        self.rate.note_headers(headers)
        self.rate.accepted()
        self._denied, self._retry_after_s, self._trial = None, FIRST_TRY_AFTER_S, None

    def answered(self, ticket: Ticket, exchange: Exchange, usage: ApiUsage) -> float | None:
        """A whole answer; `usage` complete, estimated where the API told none. Returns its cost in USD, None if unknown."""
        cost, listed = billed_usd(usage, self.prices), listed_usd(usage, self.prices)
        if cost is not None and listed and cost > listed * RATIO_TOLERANCE:
            self._price_ratio = max(self._price_ratio, cost / listed)
        stream = exchange.stream
        self.answered_model, self.provider = stream.model or self.config.model, stream.provider
        self.ended(exchange, usage.completion_tokens or 0)
        if stream.usage.completion_tokens is not None:
            self.guess.learn(
                body_bytes=len(ticket.body),
                prompt_tokens=stream.usage.prompt_tokens,
                characters=stream.characters,
                completion_tokens=stream.usage.completion_tokens,
            )
        self.counts.unpriced += cost is None
        return cost

    def ended(self, exchange: Exchange, completion_tokens: int) -> None:
        """An answer has ended, whole or not: its tokens count against the limits."""
        self.rate.finished(self.clock(), completion_tokens, exchange.ended_at - exchange.sent_at)

    def refused(self, ticket: Ticket, error: TooManyError, in_flight: int) -> None:
        """HTTP 429."""
        self.counts.refused += 1
        if ticket.probe is not None:
            ticket.probe.refused += 1
        self.rate.note_headers(error.headers)
        self.rate.refused(
            self.clock(),
            started_at=ticket.started_at,
            prompt_tokens=ticket.prompt_tokens,
            in_flight=in_flight,
            retry_after_s=error.retry_after_s,
            resource=resource_of(str(error), error.headers),
        )

    def deny(self, words: str) -> None:
        """It refuses us, whatever the prompt."""
        self._deny(words, self.clock())

    def _deny(self, words: str, now: float) -> None:
        if self._denied is None or now >= self._retry_at:
            self._retry_at = now + self._retry_after_s
            self._retry_after_s = min(2 * self._retry_after_s, LAST_TRY_AFTER_S)
        self._denied = words

    def try_now(self) -> None:
        """Somebody asked: what it was refused for may be mended."""
        self._retry_at, self._retry_after_s = 0.0, FIRST_TRY_AFTER_S

    def not_wanted(self) -> None:
        """Nothing asks for room below the cap: whether there is some is found out by the next request that does."""
        self._capped = None

    def looked_up(self, *, found: bool) -> None:
        """Whether a bill could be had by the id of its answer."""
        self._fruitless = 0 if found else self._fruitless + 1
        self.can_look_up = self._fruitless < FRUITLESS_LOOKUPS

    def is_ours(self, model: str | None) -> bool:
        """Whether that is the model that was asked for."""
        return is_same_model(self.config.model, model, self.config.accept_models)

    # -- what is told ------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[ApiState, str | None]:
        """What it is doing, and why it does not do more."""
        now = self.clock()
        if self._denied is not None:
            wait_s = max(0.0, self._retry_at - now)
            when = f"tried again in {wait_s:.0f} s" if wait_s else "being tried again"
            return ApiState.PAUSED, f"{self._denied.rstrip('.')} ({when}; nothing is lost)"
        if self._capped is not None:
            return (ApiState.OPEN if self.spend.in_flight else ApiState.CAPPED), self._capped
        held_until = self.rate.view(now).held_until
        if held_until is not None and held_until - now >= 1.0:
            return ApiState.WAITING, f"it asked to wait {held_until - now:.0f} s"
        return ApiState.OPEN, None
