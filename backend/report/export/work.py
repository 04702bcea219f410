"""An export from its first row to its last file: chosen by outcome, without duplicates, split by prompt, in constant memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from backend.config import RunConfig, Turns, load
from backend.heartbeat import read_heartbeat
from backend.outcomes import outcome_of_record
from backend.records import Json
from backend.report.export import forms
from backend.report.export.card import Card, card_text
from backend.report.export.files import CARD, SPLITS, Writer, draft_folder, open_writer
from backend.report.export.options import ExportError, ExportOptions, Flagged, Format
from backend.report.export.source import Source, read_flagged, records_of
from backend.report.export.tally import Tally
from backend.run_dir import RunDir
from backend.runs import nearest
from backend.tokenizer import ModelTokenizer, TokenizerError, find_tokenizer

DIGEST_BYTES: Final = 16
TEXT_BATCH: Final = 256
FLAGGED: Final = "flagged by somebody"
NOT_FLAGGED: Final = "not flagged"
DUPLICATE: Final = "duplicate: the same prompt with the same answer"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an export is, in rows read."""

    done: int
    total: int
    written: int


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What an export came to."""

    to: Path
    samples: int
    holdout: int
    left_out: dict[str, int]  # reason → samples
    skipped: tuple[str, ...]  # sentences about shards that were passed over


def export(
    run: RunDir,
    options: ExportOptions,
    *,
    now: float,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> ExportResult:
    """Makes the folder `options.to`, whole or not at all; `now` in epoch seconds goes into its card. What `on_progress` raises
    ends it.

    Raises ExportError, and RunDirError or ConfigError where the run cannot be read.
    """
    config = load(run.config)
    datasets = _chosen(config, options)
    work = _Export(config, options, datasets, _decoder(config, options), read_flagged(run))
    source = Source(run, datasets, forms.columns_for(options.format))
    with draft_folder(options.to, force=options.force) as folder, work:
        read = 0
        for batch in source.batches():
            work.take(batch, source, folder)
            read += batch.num_rows
            on_progress(Progress(read, source.rows, work.tally.samples))
        splits = work.close()
        if not splits:
            raise ExportError(_nothing(run, datasets, work.tally, options))
        card = Card(run.name, config, datasets, options, work.tally, splits, tuple(source.skipped), _versions(run), now)
        (folder / CARD).write_text(card_text(card), encoding="utf-8")
    tally = work.tally
    return ExportResult(options.to, tally.samples, tally.holdout, dict(tally.left_out), tuple(source.skipped))


class _Export:
    """Takes rows, keeps what is wanted, and writes it."""

    def __init__(
        self,
        config: RunConfig,
        options: ExportOptions,
        datasets: tuple[str, ...],
        tokenizer: ModelTokenizer | None,
        flagged: frozenset[tuple[str, str, int, int]],
    ) -> None:
        self.tally = Tally()
        self._options = options
        self._tokenizer = tokenizer
        self._flagged = flagged
        self._many = len(datasets) > 1
        self._every_turn = {d.name for d in config.datasets if d.turns is Turns.ALL}
        self._digests: set[bytes] = set()
        self._writers: dict[str, Writer] = {}

    def take(self, batch: Any, source: Source, folder: Path) -> None:
        """A batch of rows."""
        ids = [name for name in forms.ID_COLUMNS if name in batch.schema.names]
        for split, row in self._rows(records_of(batch, ids), source):
            writer = self._writers.get(split)
            if writer is None:
                writer = open_writer(folder, split, self._options.format, parquet=self._options.parquet)
                self._writers[split] = writer
            writer.add(row)

    def __enter__(self) -> _Export:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            for writer in self._writers.values():
                writer.give_up()

    def close(self) -> tuple[str, ...]:
        """Completes the files; the splits there are."""
        for writer in self._writers.values():
            writer.close()
        return tuple(split for split in SPLITS if split in self._writers)

    def _rows(self, records: Iterator[dict[str, Any]], source: Source) -> Iterator[tuple[str, Json]]:
        waiting: list[tuple[str, Json]] = []  # texts are decoded many at a time
        for record in records:
            try:
                made = self._row(record, source)
            except forms.UnfitError as reason:
                self.tally.left_out[str(reason)] += 1
                continue
            if made is None:
                continue
            if self._options.format is Format.TEXT:
                waiting.append(made)
                if len(waiting) >= TEXT_BATCH:
                    yield from self._decoded(waiting)
                    waiting = []
            else:
                yield made
        yield from self._decoded(waiting)

    def _row(self, record: dict[str, Any], source: Source) -> tuple[str, Json] | None:
        """A row that is wanted, and its split. Raises UnfitError."""
        options = self._options
        key = (record["dataset"], record["sample_id"], record["turn"], record["attempt"])
        if key in source.superseded:
            return None  # it no longer counts, nowhere
        outcome = outcome_of_record(record)
        if outcome not in options.outcomes:
            raise forms.UnfitError(outcome.value)
        if options.flagged is not Flagged.KEEP and (key in self._flagged) is not (options.flagged is Flagged.ONLY):
            raise forms.UnfitError(FLAGGED if key in self._flagged else NOT_FLAGGED)
        asked = forms.read_asked(record["messages"])
        prompt = forms.sampled_from(asked, every_turn=record["dataset"] in self._every_turn)
        name = f"{record['dataset']}/{record['sample_id']}" if self._many else record["sample_id"]
        if options.format in (Format.TEXT, Format.TOKEN_IDS):
            row: Json = {"id": name, "dataset": record["dataset"], "outcome": outcome.value, **forms.token_ids(record)}
            content = row["input_ids"].tobytes()
        else:
            messages = forms.conversation(record, asked)
            row = forms.chat(options.format, name, messages, asked.tools)
            content = orjson.dumps([messages, asked.tools], option=orjson.OPT_SORT_KEYS)
        if not options.keep_duplicates and self._is_known(content):
            raise forms.UnfitError(DUPLICATE)
        split = SPLITS[is_held_out(prompt, options.holdout)]
        maker = (record["source"], record["model"])
        self.tally.add(record["dataset"], outcome.value, maker, record["completion_tokens"], holdout=split == SPLITS[1])
        return split, row

    def _is_known(self, content: bytes) -> bool:
        digest = hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()
        known = digest in self._digests
        self._digests.add(digest)
        return known

    def _decoded(self, rows: list[tuple[str, Json]]) -> Iterator[tuple[str, Json]]:
        if not rows or self._tokenizer is None:
            return
        texts = self._tokenizer.texts([row["input_ids"].tolist() for _, row in rows])
        for (split, row), text in zip(rows, texts, strict=True):
            yield split, {"id": row["id"], "dataset": row["dataset"], "outcome": row["outcome"], "text": text}


def is_held_out(prompt: bytes, holdout: float) -> bool:
    """Whether a prompt belongs to the held-out share. It depends on nothing but the prompt, so that it falls on the same side
    in every export of every run, and a larger share holds all of a smaller one.
    """
    digest = hashlib.blake2b(prompt, digest_size=8, person=b"headway split").digest()
    return int.from_bytes(digest, "big") < holdout * 2**64


def _chosen(config: RunConfig, options: ExportOptions) -> tuple[str, ...]:
    names = [dataset.name for dataset in config.datasets]
    for name in options.datasets:
        if name not in names:
            raise ExportError(f"There is no dataset {name!r} in this run. {nearest(name, names, what='datasets')}")
    return tuple(name for name in names if name in options.datasets) if options.datasets else tuple(names)


def _decoder(config: RunConfig, options: ExportOptions) -> ModelTokenizer | None:
    if options.format is not Format.TEXT:
        return None
    path = options.tokenizer or find_tokenizer(config.model.path)
    if path is None:
        raise ExportError(
            f"The format text needs the model's tokenizer.json, and none of {config.model.path} lies on this machine. Name it "
            "with --tokenizer, or export messages or token_ids, which need none."
        )
    try:
        return ModelTokenizer(path)
    except TokenizerError as error:
        raise ExportError(str(error)) from None


def _nothing(run: RunDir, datasets: tuple[str, ...], tally: Tally, options: ExportOptions) -> str:
    names = ", ".join(datasets)
    if not tally.left_out:
        return f"Nothing to export: {run.name} has no finished sample of {names} yet."
    why = ", ".join(f"{count:,} {reason}" for reason, count in tally.left_out.most_common())
    wanted = ", ".join(options.outcomes)
    return f"Nothing to export: of {names} nothing is left for the outcomes {wanted} ({why}). Ask for others with --outcomes."


def _versions(run: RunDir) -> tuple[str, ...]:
    heartbeat = read_heartbeat(run)
    replicas = heartbeat.status.replicas if heartbeat else ()
    return tuple(sorted({replica.version for replica in replicas if replica.version}))
