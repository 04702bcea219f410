"""`adopt`: answers that other scripts made become finished samples, and what became of each line is told."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from backend.commands.speaking import complain, say
from backend.commands.steering import who
from backend.report.formatting import compact, plural
from backend.runs import command_name, find_run, runs_folder

if TYPE_CHECKING:
    from backend.job.adoption.account import Account


def adopt_outputs(options: argparse.Namespace) -> int:
    """Adopts and reports. 1 where no line of the files belongs to the dataset."""
    from backend.job.adoption.account import Fate
    from backend.job.adoption.adopt import AdoptOptions, adopt
    from backend.job.adoption.outputs import Fields

    logging.getLogger("backend.job").addHandler(logging.NullHandler())  # what it warns of is in the refusal
    run = find_run(options.run, runs_folder())
    wanted = AdoptOptions(
        fields=Fields(options.id_field, options.prompt_field, options.answer_field),
        finish_reason=options.finish_reason,
        model=options.model,
        tokenizer=Path(options.tokenizer) if options.tokenizer else None,
        report=Path(options.report) if options.report else None,
        dry_run=options.dry_run,
    )
    account = adopt(run, options.dataset, [Path(file) for file in options.files], wanted, who=who())
    _tell(account, options)
    belong = sum(account.counts[fate] for fate in (Fate.ADOPTED, Fate.FINISHED, Fate.REPLACED, Fate.DUPLICATE))
    if not belong:
        complain(f"No line of these files belongs to {options.dataset}. Are they another dataset's, or are fields to be named?")
        return 1
    if account.counts[Fate.ADOPTED] and not options.dry_run:
        say(f"The run goes on from there: python -m backend start {command_name(run)}")
    return 0


def _tell(account: Account, options: argparse.Namespace) -> None:
    from backend.job.adoption.account import KEPT, WORDS, Fate

    verb = "Would adopt" if options.dry_run else "Adopted"
    say(
        f"{verb} {plural(account.turns, 'sample')} ({compact(account.completion_tokens)} completion tokens) of "
        f"{plural(account.outputs, 'line')}. {options.dataset} has {plural(account.samples_after, 'finished sample')} now."
    )
    if account.estimated:
        say(f"  The tokens of {account.estimated:,} are estimated: no server told them, and no tokenizer.json was found.")
    if account.unknown_ends:
        say(f"  How {account.unknown_ends:,} ended is not known: whether a cap cut them cannot be told (see --finish-reason).")
    for fate in Fate:
        if fate is Fate.ADOPTED or not account.counts[fate]:
            continue
        say(f"  {account.counts[fate]:,} {WORDS[fate]}")
        found = [finding for finding in account.findings if finding.fate is fate]
        for finding in found:
            say(f"    {finding.place}: {finding.words}")
        if account.counts[fate] > KEPT:
            say(
                f"    and {account.counts[fate] - len(found):,} more" + ("" if options.report else " (--report FILE lists all)")
            )
