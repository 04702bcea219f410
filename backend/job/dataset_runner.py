"""One dataset at work: where its next prompt comes from, what is in flight, what has been made, what went wrong.

It keeps the accounts of one dataset and holds its prompts; `slots.py` sends them, `reconcile.py` decides its state.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from backend.config import DatasetConfig, PromptFile, RunConfig, Turns
from backend.holds import fact_name, from_json, to_json
from backend.job.admission import DatasetAdmission, Limits
from backend.job.answers import REJECTED, message_of
from backend.job.dataset_guard import DatasetGuard
from backend.job.ledger import FinishedKey, Ledger, LedgerError
from backend.job.ledger_search import count_lengths, recent_lengths
from backend.job.wishes import DatasetWish
from backend.prompts import BadLine, PromptFileError, PromptReader, next_turn, turn_count, verify
from backend.records import DatasetState, DoneReason, Json, Prompt, Row

log = logging.getLogger(__name__)

LEARN_FROM_ROWS: Final = 2_000  # newest rows of former lives, for the lengths to expect
KEPT_BAD_LINES: Final = 100  # in words; all are counted
KEPT_WORDS: Final = 300  # characters of an error
_READ_CHUNK: Final = 512


class DatasetRunner:
    """The supervisor's view of one dataset. Belongs to the event loop, except that prompts are read on a thread."""

    def __init__(
        self,
        config: RunConfig,
        dataset: DatasetConfig,
        ledger: Ledger,
        *,
        base: Path,
        wish: DatasetWish,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`base` is the folder that relative prompt paths start from; `clock` tells seconds and never goes back."""
        self.config = dataset
        self.name = dataset.name
        self.sampling = config.sampling_for(dataset).model_copy(update={"max_new_tokens": wish.max_new_tokens})
        self.state = DatasetState.WAITING
        self.reason: str | None = None
        self.fault: str | None = None
        self.reasoning_opened = False  # seen: its chat template opens the reasoning, answers begin inside it
        self.begun = False  # that it runs was told
        self.turn_has_come = False  # its requests are no longer a pilot
        self.open = True  # it is wanted to run, and no guard holds it
        self.sources = wish.route.sources  # who may take its prompts
        self.mixed: str | None = None  # why it is held: another model answered than was asked for
        self.retries = 0
        self.lost_tokens = 0.0  # made in vain by requests that were aborted or sent again
        self.superseded_tokens = 0  # of samples that were finished, and are made again since
        self.storing = 0  # answered, their rows not yet durable
        self.bad_line_count = 0
        self.bad_lines: list[BadLine] = []
        self.last_retry: tuple[float, str] | None = None  # when, epoch seconds, and its words
        self.first_rejection: str | None = None  # its words
        self.request_speed_tokens_per_s: float | None = None  # of one request, as the engines' counters tell it now
        self._ledger = ledger
        self._base = base
        self._clock = clock
        self._files: list[PromptFile] = list(config.frozen.prompt_files[dataset.name]) if config.frozen else []
        intents = ledger.accepted_intents()
        self.guard = DatasetGuard(
            config.guards_for(dataset),
            from_json(ledger.get_fact(fact_name(dataset.name)), dataset.name, intents),
            intents=lambda: len(ledger.accepted_intents()),
        )
        if (hold := self.guard.hold) is not None:  # by a former life; it was told then
            self.state, self.reason = DatasetState.HELD, hold.reason
        totals = ledger.totals(dataset.name)
        self.admission = DatasetAdmission(
            limits_of(wish),
            finished_samples=totals.samples,
            finished_tokens=totals.completion_tokens,
            max_new_tokens=self.sampling.max_new_tokens,
            finished_lengths=recent_lengths(ledger.run, dataset.name, LEARN_FROM_ROWS) if totals.samples else (),
        )
        # completion tokens of all that a model answered and that counts → how often
        self.lengths: Counter[int] = count_lengths(ledger.run, dataset.name) if totals.samples else Counter()
        self._conversations = self._turns = 0  # read so far, with turns = "all"
        self.turns_to_come = 0  # of conversations in flight, after the turns that are in flight
        self._given_back: deque[Prompt] = deque()  # started once, and later turns of conversations: these go first
        self._fresh: deque[Prompt] = deque()
        self._claimed: set[str] = set()  # sample ids buffered or in flight: a second pass over the file must skip them
        self._source: Iterator[Prompt | BadLine] | None = None
        self._ended = False  # the source has no more
        self._verified = False
        self._passes = 0

    @property
    def in_flight(self) -> int:
        """Slots in use. What is answered and not yet durable uses none, and the limits count it all the same."""
        return self.admission.in_flight - self.storing

    # -- what the choice between datasets asks (admission.View) ------------------------------------------------------------

    @property
    def prompt_ready(self) -> bool:
        """Whether a prompt can be taken now."""
        return bool(self._given_back or self._fresh)

    @property
    def exhausted(self) -> bool:
        """No prompt is left to start. (What is in flight may still come back.)"""
        return self._ended and not self.prompt_ready

    @property
    def prompts(self) -> int | None:
        """Readable prompts as counted when the run was created, bad lines included; None where that is not known."""
        counts = [file.records for file in self._files]
        return sum(counts) if counts else None

    @property
    def expected_samples(self) -> int | None:
        """What the prompts come to: with turns = "all" reckoned from the conversations read so far; None: not known."""
        if self.prompts is None:
            return None
        readable = max(self.prompts - self.bad_line_count, 0)
        return round(readable * self._turns / self._conversations) if self._conversations else readable

    @property
    def wants_prompts(self) -> bool:
        """Whether reading ahead would be of use."""
        return not self._ended and self.fault is None

    @property
    def held_for(self) -> str | None:
        """Why nothing more is asked for: a guard's reason, or that another model answers."""
        return self.mixed or (None if self.guard.hold is None else self.guard.hold.reason)

    def buffered(self) -> int:
        """Prompts at hand."""
        return len(self._given_back) + len(self._fresh)

    @property
    def in_pilot(self) -> bool:
        """All that is in flight was sent before its turn."""
        return self.in_flight > 0 and not self.turn_has_come

    def set_cap(self, max_new_tokens: int | None) -> None:
        """Another cap of completions, for requests to come."""
        if max_new_tokens != self.sampling.max_new_tokens:
            self.sampling = self.sampling.model_copy(update={"max_new_tokens": max_new_tokens})
            self.admission.set_cap(max_new_tokens)
            self.guard.cap_changed()

    def may_admit(self) -> bool:
        """Whether guard and limits allow one more request now."""
        return self.held_for is None and self.admission.may_admit(self._clock(), self.request_speed_tokens_per_s)

    def limit_reached(self) -> DoneReason | None:
        """The limit that ends the dataset; None while something is in flight or one more request would be admitted."""
        return self.admission.limit_reached(self._clock())

    # -- prompts -----------------------------------------------------------------------------------------------------------

    async def read_ahead(self, wanted: int) -> None:
        """Reads on until `wanted` prompts are at hand or none is left. A file that cannot be read makes a `fault`."""
        try:
            if not self._verified:
                await asyncio.to_thread(verify, self.config, self._files, self._base)
                self._verified = True
            while self.wants_prompts and self.buffered() < wanted:
                passes = self._passes
                prompts, bad, ended = await asyncio.to_thread(self._read_chunk)
                if passes != self._passes:
                    continue  # a redo began a new pass meanwhile: what was read is read again
                self._note_bad_lines(bad)
                for prompt in prompts:
                    await self._accept(prompt)
                self._ended = ended
        except PromptFileError as error:
            self.fault = str(error)

    def take(self) -> Prompt:
        """The next prompt. Raises IndexError when none is ready."""
        return (self._given_back or self._fresh).popleft()

    def give_back(self, prompt: Prompt) -> None:
        """A prompt whose request ended without a sample: it keeps its place at the head."""
        self._given_back.appendleft(prompt)

    def read_again(self) -> None:
        """Begins a new pass over the prompt file: what is not finished (any more) is found again."""
        self._source, self._ended = None, False
        self._passes += 1

    def hold(self, words: str) -> None:
        """Nothing more is asked for until somebody resumes it."""
        self.mixed = self.mixed or words

    def forgive(self) -> None:
        """Somebody asked it to go on: what it failed with may be mended, its files are looked at again."""
        self.mixed = None
        if self.fault is not None:
            self.fault, self._verified = None, False
            self.read_again()

    # -- accounts ----------------------------------------------------------------------------------------------------------

    def started(self, prompt: Prompt, *, pilot: bool = False) -> None:
        """A request for the prompt takes a slot; `pilot`: before the dataset's turn."""
        self.turn_has_come |= not pilot
        self.turns_to_come += turn_count(prompt.later_turns) - 1
        self.admission.started(prompt.sample_id, self._clock())
        self.guard.started(prompt)

    def ended_without_sample(self, prompt: Prompt) -> None:
        """The slot is free again and the prompt waits for another one."""
        self.begins_anew(prompt)
        self.turns_to_come -= turn_count(prompt.later_turns) - 1
        self.admission.given_back(prompt.sample_id, self._clock())
        self.give_back(prompt)

    def begins_anew(self, prompt: Prompt) -> None:
        """Its request is sent again from the beginning: what it has made so far is lost."""
        self.lost_tokens += self.admission.begins_anew(prompt.sample_id, self._clock())

    def forget_sample(self, key: FinishedKey) -> None:
        """A sample was superseded: it will be made again."""
        self.admission.forget_sample(key.completion_tokens)
        self.superseded_tokens += key.completion_tokens
        if key.finish_reason != REJECTED:
            self.lengths[key.completion_tokens] -= 1

    def note_retry(self, words: str, now: float) -> None:
        """A try failed and is made again."""
        self.retries += 1
        self.last_retry = now, words[:KEPT_WORDS]

    def finished(self, prompt: Prompt, row: Row, answer: Json | None) -> None:
        """A durable sample. `answer` is the assistant message, from which a conversation goes on."""
        self._claimed.discard(prompt.sample_id)
        self.turns_to_come -= turn_count(prompt.later_turns) - 1
        self.guard.finished(prompt, row)
        if row.finish_reason == REJECTED:
            # no length was learnt from a refusal, but the sample is spent
            self.admission.given_back(prompt.sample_id, self._clock())
            self.admission.finished_samples += 1
            self.first_rejection = self.first_rejection or str(row.error)[:KEPT_WORDS]
            return
        self.admission.finished(prompt.sample_id, self._clock(), row.completion_tokens)
        self.lengths[row.completion_tokens] += 1
        if self.config.turns is Turns.ALL and answer is not None:
            following = next_turn(prompt, answer)
            if following is not None and not self._ledger.is_done(self.name, following.sample_id):
                self._claimed.add(following.sample_id)
                self._given_back.append(self._with_attempt(following))

    async def keep_holds(self) -> None:
        """What the guard found outlives this process. Where the ledger cannot be written it is tried again."""
        if self.guard.unsaved:
            self.guard.unsaved = False
            try:
                await self._ledger.set_fact(fact_name(self.name), to_json(self.guard.holds))
            except LedgerError as error:
                self.guard.unsaved = True
                log.warning("%s: that it is held cannot be written down: %s", self.name, error)

    # -- inside ------------------------------------------------------------------------------------------------------------

    def _read_chunk(self) -> tuple[list[Prompt], list[BadLine], bool]:
        """On a thread: the next prompts that are neither finished nor claimed, what was unreadable, and if that was all."""
        if self._source is None:
            reader = PromptReader(self.config, self._files, self._base)
            self._source = reader.iter(lambda sample_id: self._ledger.is_done(self.name, sample_id))
        items = list(itertools.islice(self._source, _READ_CHUNK))
        prompts = [item for item in items if isinstance(item, Prompt)]
        return prompts, [item for item in items if isinstance(item, BadLine)], len(items) < _READ_CHUNK

    async def _accept(self, prompt: Prompt) -> None:
        following: Prompt | None = prompt
        if self.config.turns is Turns.ALL:
            self._conversations += 1
            self._turns += turn_count(prompt.later_turns)
        if self.config.turns is Turns.LAST and self._ledger.is_done(self.name, prompt.sample_id):
            return  # finished while the chunk was being read
        # With turns = "all" the reader starts a conversation at its first turn; go on from its durable answers.
        while following is not None and self._ledger.is_done(self.name, following.sample_id):
            row = await asyncio.to_thread(self._ledger.find_row, self.name, following.sample_id, following.position)
            following = None if row is None or row.finish_reason == REJECTED else next_turn(following, message_of(row))
        if following is None or following.sample_id in self._claimed:
            return
        self._claimed.add(following.sample_id)
        self._fresh.append(self._with_attempt(following))

    def _with_attempt(self, prompt: Prompt) -> Prompt:
        attempt = self._ledger.next_attempt(self.name, prompt.sample_id)
        if attempt == prompt.attempt:
            return prompt
        return replace(prompt, attempt=attempt)

    def _note_bad_lines(self, bad: list[BadLine]) -> None:
        if self._passes:
            return  # a second pass meets the same ones
        self.bad_line_count += len(bad)
        self.bad_lines += bad[: max(0, KEPT_BAD_LINES - len(self.bad_lines))]


def limits_of(wish: DatasetWish) -> Limits:
    """The limits that a wish asks for."""
    return Limits(token_budget=wish.token_budget, max_samples=wish.max_samples, at_budget=wish.at_budget)
