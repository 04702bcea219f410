"""`export`: finished samples as files that can be trained on. With --json it tells a program how far it is, line by line."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from backend.commands.speaking import complain, say
from backend.records import Outcome
from backend.report.export.options import ExportOptions, Flagged, Format
from backend.report.formatting import plural
from backend.runs import find_run, runs_folder

if TYPE_CHECKING:
    from backend.report.export.work import ExportResult, Progress

TELL_EACH_S: Final = 0.5


def export_samples(options: argparse.Namespace) -> int:
    """Makes the folder and says what is in it."""
    from backend.report.export.work import export

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # who ends it leaves nothing half
    run = find_run(options.run, runs_folder())
    wanted = ExportOptions(
        format=Format(options.format),
        to=Path(options.to),
        datasets=tuple(options.dataset or ()),
        outcomes=tuple(Outcome(name) for name in options.outcomes),
        holdout=options.holdout,
        parquet=options.parquet,
        flagged=Flagged(options.flagged),
        keep_duplicates=options.keep_duplicates,
        force=options.force,
        tokenizer=Path(options.tokenizer) if options.tokenizer else None,
    )
    teller = _Teller(as_json=options.json)
    result = export(run, wanted, now=time.time(), on_progress=teller.tell)
    teller.end()
    for sentence in result.skipped:
        complain(sentence)
    if options.json:
        print(json.dumps({"done": asdict(result) | {"to": str(result.to)}}), flush=True)
    else:
        _say_result(result)
    return 0


class _Teller:
    """Says how far it is, now and then: to a terminal on stderr, to a program on stdout."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._shown = sys.stderr.isatty() and not as_json
        self._next_at = 0.0

    def tell(self, progress: Progress) -> None:
        now = time.monotonic()
        if now < self._next_at:
            return
        self._next_at = now + TELL_EACH_S
        if self._as_json:
            print(json.dumps({"progress": asdict(progress)}), flush=True)
        elif self._shown:
            print(f"\r{progress.done:,} of {progress.total:,} samples read", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown and self._next_at:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _say_result(result: ExportResult) -> None:
    say(f"Exported {plural(result.samples, 'sample')} to {result.to}, {result.holdout:,} of them held out.")
    for reason, count in sorted(result.left_out.items(), key=lambda item: -item[1]):
        say(f"  left out: {count:,}, {reason.replace('_', ' ')}")
    say(f"{result.to}/README.md says what is in it.")
