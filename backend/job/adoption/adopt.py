"""Adopts the outputs of other scripts into a dataset of a run that no supervisor works on: a row for each, never twice.

Killed at any moment, every row that is in the ledger is whole, and the same command goes on.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final

from backend.config import RunConfig, Turns, load
from backend.job.adoption.account import Account, Fate
from backend.job.adoption.adopted_rows import Match, is_empty, make_rows
from backend.job.adoption.matching import Outputs, prompt_digest
from backend.job.adoption.output_files import AdoptError, OutputFiles
from backend.job.adoption.outputs import Fields, Output, OutputError, Spoken, read_output
from backend.job.group_commit import LedgerError
from backend.job.ledger import Ledger
from backend.job.sealing import Sealer
from backend.prompts import PromptReader, next_turn, verify
from backend.records import Json, Prompt
from backend.run_dir import RunDir, open_state
from backend.runs import command_name, nearest
from backend.tokenizer import ModelTokenizer, TokenizerError, find_tokenizer

BATCH_TURNS: Final = 500  # counted and written together


@dataclass(frozen=True, slots=True)
class AdoptOptions:
    """How outputs are read and what is assumed where they are silent."""

    fields: Fields = field(default_factory=Fields)
    finish_reason: str | None = None  # None: unknown
    model: str = "unknown"
    tokenizer: Path | None = None  # None: the model's
    report: Path | None = None  # a file to make
    dry_run: bool = False  # only tells what would be


def adopt(run: RunDir, dataset: str, files: Sequence[Path], options: AdoptOptions, *, who: str) -> Account:
    """Raises AdoptError, ConfigError, PromptFileError, RunDirError."""
    config = load(run.config)
    names = [one.name for one in config.datasets]
    if dataset not in names:
        raise AdoptError(f"There is no dataset {dataset!r} in this run. {nearest(dataset, names, what='datasets')}")
    tokenizer = _tokenizer(config, options)
    with _maintenance(run), OutputFiles(files, run.root) as outputs, Account(options.report) as account:
        work = _Adoption(run, config, dataset, files=outputs, account=account, options=options, tokenizer=tokenizer)
        try:
            asyncio.run(work.run_all())
        except LedgerError as error:
            raise AdoptError(f"{error} What was adopted until then is kept; the same command goes on.") from None
        if account.turns and not options.dry_run:
            _record(run, dataset, account, who)
    return account


class _Adoption:
    def __init__(
        self,
        run: RunDir,
        config: RunConfig,
        dataset: str,
        *,
        files: OutputFiles,
        account: Account,
        options: AdoptOptions,
        tokenizer: ModelTokenizer | None,
    ) -> None:
        self._run = run
        self._config = config
        self._dataset = config.dataset(dataset)
        self._files = files
        self._account = account
        self._options = options
        self._tokenizer = tokenizer
        self._every_turn = self._dataset.turns is Turns.ALL
        self._prompt_files = list(config.frozen.prompt_files[dataset]) if config.frozen else []
        self._outputs = Outputs()

    async def run_all(self) -> None:
        verify(self._dataset, self._prompt_files, self._run.root)
        self._index()
        ledger = Ledger.open(self._run)
        driver = self._config.driver
        sealer = Sealer(ledger, shard_rows=driver.shard_rows, shard_seconds=driver.shard_seconds)
        try:
            waiting: list[list[Match]] = []
            for matches in self._matches(ledger):
                waiting.append(matches)
                if sum(map(len, waiting)) >= BATCH_TURNS:
                    await self._keep(ledger, sealer, waiting)
                    waiting = []
            await self._keep(ledger, sealer, waiting)
            if not self._options.dry_run:
                sealed = await sealer.seal(self._dataset.name)
                if sealed.problem:
                    raise LedgerError(sealed.problem)
            self._account.samples_after = ledger.totals(self._dataset.name).samples
        finally:
            await ledger.close()
        self._tell_left()

    def _index(self) -> None:
        """Notes every output by its id and by its prompt, and what is none."""
        for number, record in self._files.read():
            try:
                if isinstance(record, str):
                    self._account.note(Fate.BROKEN, self._files.place(number), record)
                    continue
                output = read_output(record, self._options.fields)
                if is_empty(output.turns[-1]):
                    self._account.note(Fate.EMPTY, self._files.place(number), "no answer after the reasoning")
                    continue
            except OutputError as error:
                self._account.note(Fate(error.flaw.value), self._files.place(number), str(error))
                continue
            self._outputs.add(number, output.sample_id, self._digest(self._first(output).asked))

    def _matches(self, ledger: Ledger) -> Iterator[list[Match]]:
        """For each prompt that an output answers, the turns to keep."""
        name = self._dataset.name
        for prompt in PromptReader(self._dataset, self._prompt_files, self._run.root):
            if not isinstance(prompt, Prompt):
                continue
            digest = prompt_digest(prompt.messages, self._dataset.system_prompt)
            stem = prompt.sample_id.removesuffix("/t0") if self._every_turn else prompt.sample_id
            number = self._outputs.take(stem, digest)
            if number is None:
                continue
            if ledger.is_done(name, prompt.sample_id):
                self._account.note(Fate.FINISHED, self._files.place(number), f"sample {prompt.sample_id} is finished")
            elif ledger.next_attempt(name, prompt.sample_id) > 1:
                self._account.note(Fate.REPLACED, self._files.place(number), f"sample {prompt.sample_id} is to be made again")
            else:
                yield self._turns(prompt, number, ledger)

    def _turns(self, prompt: Prompt, number: int, ledger: Ledger) -> list[Match]:
        output = read_output(self._files.record(number), self._options.fields)
        at = output.created_at or self._files.written_at(number)
        if not self._every_turn:
            return [Match(prompt, output.turns[-1], output, at)]
        matches: list[Match] = []
        following: Prompt | None = prompt
        for spoken in output.turns:
            if following is None or ledger.next_attempt(prompt.dataset, following.sample_id) > 1 or is_empty(spoken):
                break
            if spoken.asked is not None and self._digest(spoken.asked) != self._digest(following.messages):
                break  # the script went on in another way
            matches.append(Match(following, spoken, output if spoken is output.turns[-1] else None, at))
            following = next_turn(following, _said(matches[-1]))
        return matches

    async def _keep(self, ledger: Ledger, sealer: Sealer, waiting: list[list[Match]]) -> None:
        if not waiting:
            return
        account, options = self._account, self._options
        rows = make_rows(
            list(chain.from_iterable(waiting)),
            cap=self._config.sampling_for(self._dataset).max_new_tokens,
            tokenizer=self._tokenizer,
            finish_reason=options.finish_reason,
            model=options.model,
        )
        if not options.dry_run:
            stored = [ledger.append(row) for row in rows]
            for ended in await asyncio.gather(ledger.flush(), *stored, return_exceptions=True):
                if isinstance(ended, BaseException):
                    raise ended
            sealed = await sealer.seal_due(time.time()) if self._is_full(ledger) else None
            if sealed and sealed.problem:
                raise LedgerError(sealed.problem)
        account.counts[Fate.ADOPTED] += sum(1 for matches in waiting if matches)
        account.turns += len(rows)
        account.completion_tokens += sum(row.completion_tokens for row in rows)
        account.estimated += sum(row.tokens_estimated for row in rows)
        account.unknown_ends += sum(row.finish_reason == "unknown" for row in rows)

    def _is_full(self, ledger: Ledger) -> bool:
        return ledger.open_rows(self._dataset.name).rows >= self._config.driver.shard_rows

    def _tell_left(self) -> None:
        for number, is_duplicate in self._outputs.left():
            if is_duplicate:
                self._account.note(Fate.DUPLICATE, self._files.place(number), "another output answers the same sample")
            else:
                self._account.note(Fate.UNMATCHED, self._files.place(number), self._why_unmatched(number))

    def _why_unmatched(self, number: int) -> str:
        output = read_output(self._files.record(number), self._options.fields)
        has_prompt = self._first(output).asked is not None
        if output.sample_id is None:
            return "no prompt of the dataset has its text" if has_prompt else "it tells neither an id nor a prompt"
        return f"no prompt has the id {output.sample_id!a}" + (" with its text, or its text" if has_prompt else "")

    def _first(self, output: Output) -> Spoken:
        """The turn that answers the prompt itself."""
        return output.turns[0 if self._every_turn else -1]

    def _digest(self, asked: Sequence[Json] | None) -> bytes | None:
        return None if asked is None else prompt_digest(asked, self._dataset.system_prompt)


def _said(match: Match) -> Json:
    """An adopted turn as the next one sees it: without its reasoning, as if the run had made it."""
    [row] = make_rows([match], cap=None, tokenizer=None, finish_reason=None, model="")
    message: Json = {"role": "assistant", "content": row.answer or ""}
    return message | ({"tool_calls": list(match.spoken.tool_calls)} if match.spoken.tool_calls else {})


@contextmanager
def _maintenance(run: RunDir) -> Iterator[None]:
    """Holds the supervisor's lock under this pid: whoever finds it held must not be told to end what has a former one's by now.

    That is no sign of a supervisor's life, and a run that was never started stays one that never was.
    """
    is_new = not run.lock.exists()
    lock = os.open(run.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            name = command_name(run)
            raise AdoptError(
                f"A supervisor works on {run.name}, and the ledger has one writer. Stop it first (python -m backend stop "
                f"{name}), adopt, then start it again (python -m backend start {name})."
            ) from None
        former_ns = 0 if is_new else os.fstat(lock).st_mtime_ns
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        os.utime(lock, ns=(former_ns, former_ns))
        yield
    finally:
        os.close(lock)


def _tokenizer(config: RunConfig, options: AdoptOptions) -> ModelTokenizer | None:
    path = options.tokenizer or find_tokenizer(config.model.path)
    try:
        return None if path is None else ModelTokenizer(path)
    except TokenizerError as error:
        raise AdoptError(str(error)) from None


def _record(run: RunDir, dataset: str, account: Account, who: str) -> None:
    """An event, so that the page Events tells where these samples came from."""
    message = f"{account.turns:,} samples that another script made were adopted."
    details = json.dumps({fate.value: count for fate, count in account.counts.items()})
    with closing(open_state(run)) as con:
        con.execute(
            "INSERT INTO events (at, kind, subject, severity, message, who, details) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (time.time(), "dataset.adopted", f"dataset:{dataset}", "info", message, who, details),
        )
