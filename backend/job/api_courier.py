"""Carries one request to an API and its answer to a durable row: one try for each slot it is given.

What fails and may pass gives the prompt back, so that the next slot, here or at the engine, takes it; only a prompt that has
failed too often becomes a `rejected` row. The counterpart of `courier.py`, from which it takes how rows are stored.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from backend.job.answers import Answer, read_answer
from backend.job.api_bill import ApiUsage, billed_usd, listed_usd
from backend.job.api_billing import ApiBilling
from backend.job.api_driver import ApiAddress, BrokenError, Exchange, OtherModelError, TooManyError, ask
from backend.job.api_in_flight import Noted
from backend.job.api_key import NoKeyError
from backend.job.api_probe import ProbeAnswer
from backend.job.api_route import ApiRoute, Ticket
from backend.job.courier import Courier, Request, Stage
from backend.job.replica import Endpoint
from backend.job.request_driver import Completion
from backend.job.request_faults import DeniedError, RejectedError, RetryableError


@dataclass(frozen=True, slots=True)
class ApiCourier(Courier):
    """What carrying a request to an API needs."""

    route: ApiRoute
    billing: ApiBilling
    take_ticket: Callable[[Request], Ticket]
    in_flight: Callable[[], int]

    async def carry(self, request: Request) -> None:
        """From a prompt to a durable row, or to the prompt given back."""
        ticket = self.take_ticket(request)
        answer: Answer | None = None
        try:
            answer = await self._try(request, ticket)
            if answer is not None:
                await self._store(request, answer)
                self.route.failures.pop((request.runner.name, request.prompt.sample_id), None)
                self.route.counts.finished += 1
                self.route.counts.completion_tokens += answer.row.completion_tokens
        finally:
            if ticket.probe is not None:
                rejected = answer is not None and answer.message is None
                ticket.probe.failed += rejected
                ticket.probe.released(request.runner.name, again=answer is None)
            if answer is not None:
                self._journal(lambda: self.journal.remove(ticket.rid))

    async def _try(self, request: Request, ticket: Ticket) -> Answer | None:
        """One exchange. None: the prompt is given back."""
        route, exchange, started_at = self.route, Exchange(), self.now()
        request.rid = ticket.rid
        request.endpoint = Endpoint(route.name, route.config.base_url, None, "", owned=False)
        try:
            address = ApiAddress(route.config, route.key())
            self._note_in_journal(request, ticket, ticket.worst_usd)
            request.stage = Stage.SENT
            await ask(self.session, address, ticket.body, exchange, is_ours=route.is_ours, on_accepted=route.accepted)
        except asyncio.CancelledError:
            self._end_unsent(ticket) if request.stage is Stage.WAITING else self._book(ticket, request, exchange, "aborted")
            raise
        except (NoKeyError, DeniedError) as error:
            self._end_unsent(ticket)
            route.deny(str(error))
            return None
        except TooManyError as error:
            self._end_unsent(ticket)
            route.refused(ticket, error, self.in_flight())
            return None
        except RejectedError as error:
            self._end_unsent(ticket)
            return self._refused_for_good(request, started_at, str(error))
        except OtherModelError as error:
            self._book(ticket, request, exchange, "failed")
            if ticket.probe is not None:
                ticket.probe.end(f"{error.answered!r} answered, and {route.config.model!r} was asked for")
            request.runner.hold(other_model_words(route, error.answered))
            return None
        except RetryableError as error:
            if isinstance(error, BrokenError):
                self._book(ticket, request, exchange, "failed")
            else:
                self._end_unsent(ticket)
            return await self._back_off(request, started_at, error)
        return await self._keep(request, ticket, exchange, started_at)

    def _note_in_journal(self, request: Request, ticket: Ticket, usd: float | None) -> None:
        """What the request may cost, for the case that this process is killed before its row is durable."""
        noted = Noted(self.route.name, usd or 0.0, request.runner.name, request.prompt.attempt, request.prompt.sample_id)
        self._journal(lambda: self.journal.add(ticket.rid, noted.word()))

    def _end_unsent(self, ticket: Ticket) -> None:
        """Nothing was done there and nothing is billed."""
        self.route.release(ticket)
        self._journal(lambda: self.journal.remove(ticket.rid))

    def _book(self, ticket: Ticket, request: Request, exchange: Exchange, outcome: str) -> None:
        self.route.counts.failed += 1
        self.billing.book(ticket, request.prompt, exchange, outcome)

    async def _back_off(self, request: Request, started_at: float, error: RetryableError) -> Answer | None:
        """Waits with the slot, then gives the prompt back; one that failed too often is refused."""
        request.stage = Stage.WAITING
        self.tally.retried += 1
        request.runner.note_retry(f"{self.route.name}: {error}", self.now())
        key = request.runner.name, request.prompt.sample_id
        failures = self.route.failures[key] = self.route.failures.get(key, 0) + 1
        if failures > self.driver.max_retries:
            return self._refused_for_good(request, started_at, f"given up after {failures} tries; the last one: {error}")
        limit = min(self.driver.retry_backoff_s * 2.0 ** min(failures - 1, 20), self.driver.retry_backoff_max_s)
        await asyncio.sleep(error.retry_after_s or limit * random.uniform(0.5, 1.0))
        return None

    def _refused_for_good(self, request: Request, started_at: float, words: str) -> Answer:
        answer = self._rejected(request, started_at, words)
        row = replace(answer.row, source=self.route.name, model=self.route.config.model, server_epoch=None, cost_usd=0.0)
        return replace(answer, row=row)

    async def _keep(self, request: Request, ticket: Ticket, exchange: Exchange, started_at: float) -> Answer:
        self._note_answered(request)
        route, stream = self.route, exchange.stream
        text, reasoning = "".join(stream.content), "".join(stream.reasoning)
        calls = list(stream.tool_calls.values()) or None
        usage, estimated = stream.usage, False
        if usage.completion_tokens is None or usage.prompt_tokens is None:
            estimated = True
            counted = await asyncio.to_thread(route.guess.of_answer, reasoning + text)
            usage = replace(
                usage,
                prompt_tokens=ticket.prompt_tokens if usage.prompt_tokens is None else usage.prompt_tokens,
                completion_tokens=counted if usage.completion_tokens is None else usage.completion_tokens,
            )
        cost = route.answered(ticket, exchange, usage)
        at_most = None
        if estimated and usage.cost_usd is None:
            size = len((reasoning + text).encode("utf-8", "surrogatepass"))
            at_most = billed_usd(ApiUsage(ticket.prompt_tokens_bound, size), route.prices)
        route.settle(ticket, cost or 0.0, at_most_usd=at_most)
        self._note_in_journal(request, ticket, cost if at_most is None else at_most)
        first_s = None if exchange.first_at is None else exchange.first_at - exchange.sent_at
        completion = Completion(
            content=text,
            reasoning=reasoning or None,
            tool_calls=calls,
            prompt_token_ids=None,
            output_ids=None,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens or 0,
            reasoning_tokens=usage.reasoning_tokens,
            cached_tokens=usage.cached_tokens,
            finish_reason=stream.finish_reason or "stop",
            first_token_s=first_s,
            tokens_estimated=estimated,
            model=stream.model or route.config.model,
        )
        if ticket.probe is not None:
            took_s, listed = exchange.ended_at - exchange.sent_at, listed_usd(usage, route.prices)
            first_share = exchange.first_characters / max(1, stream.characters)
            ticket.probe.answers.append(ProbeAnswer(request.runner.name, usage, first_s, took_s, first_share, cost, listed))
        endpoint = Endpoint(route.name, route.config.base_url, None, stream.provider or "", owned=False)
        answer = await read_answer(
            self.session, request.prompt, completion, endpoint, started_at=started_at, finished_at=self.now(), opened=False
        )
        epoch = f"{route.name}:{stream.provider}" if stream.provider else None
        row = replace(answer.row, source=route.name, cost_usd=cost, server_epoch=epoch)
        return Answer(row, answer.message)  # what it shows of chat templates is the API's, not the engine's


def other_model_words(route: ApiRoute, answered: str) -> str:
    """Why a dataset is held whose answers come from another model."""
    return (
        f"{route.name} answers with {answered!r}, and {route.config.model!r} was asked for: that would mix two models. Where "
        f"that is the same one, put the name into accept_models of [api.{route.name}], stop and start the run; else route the "
        "dataset to local"
    )
