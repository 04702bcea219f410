"""The command line: reads the arguments, hands them to `control` or `report`, prints what comes back (docs/cli.md).

Exit codes: 0 done, 1 refused with the reason on stderr, 2 wrong usage. Nothing heavy is imported before a command needs it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

REFUSED = 1
INTERRUPTED = 130

_OUTCOMES = "ok, truncated, empty, thinking_only, degenerate, rejected"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; wrong usage leaves through argparse with 2."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show "–" shows its code
    options = build_parser().parse_args(arguments)
    from backend.commands import COMMANDS, speaking

    try:
        code = COMMANDS[options.command](options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # whoever read us has left (| head): nothing more can be told, also not when Python flushes at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except speaking.REFUSALS as error:
        speaking.complain(speaking.in_words(error))
        return REFUSED
    return code


def build_parser() -> argparse.ArgumentParser:
    """Every command with its arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m backend",
        description="Headway: long LLM generation jobs. Runs lie in $HEADWAY_RUNS, else ./runs; RUN is a name there or a path.",
        epilog="Exit codes: 0 done, 1 refused (the reason is on stderr), 2 wrong usage.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def add(name: str, text: str, *, run: bool = True) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
        if run:
            command.add_argument("run", metavar="RUN")
        return command

    create = add("create", "make a run from a TOML file; nothing is started", run=False)
    create.add_argument("config", metavar="CONFIG")

    start = add("start", "start a run's supervisor, or go on after it was stopped or died")
    stop = add("stop", "let requests in flight finish, then stop the engine and leave")
    stop.add_argument("--now", action="store_true", help="abort requests in flight; they are made again later")

    pause = add("pause", "stop admitting prompts of a dataset")
    resume = add("resume", "let a dataset go on: one that was paused, killed or held")
    kill = add("kill", "abort a dataset; what is finished stays")
    redo = add("redo", "make samples of some outcomes again; the old ones stay, superseded")
    for command in (pause, resume, kill, redo):
        command.add_argument("dataset", metavar="DATASET")
    for command in (pause, resume, kill):
        command.add_argument("--now", action="store_true", help="pause: abort requests in flight (a kill always does)")
    redo.add_argument("--outcome", required=True, action="append", metavar="OUTCOME[,OUTCOME]", help=f"of {_OUTCOMES}")

    change = add("set", "change a setting while the run goes on")
    change.add_argument(
        "setting",
        metavar="KEY=VALUE",
        help="concurrency, order, deadline, api.NAME.spend_cap_usd, DATASET.token_budget, .max_samples, .max_new_tokens",
    )
    engine = add("engine", "stop or start the engine; the run stays")
    engine.add_argument("want", choices=("start", "stop"))
    route, probe = _add_apis(add)
    for command in (start, stop, pause, resume, kill, redo, change, engine, route, probe):
        command.add_argument("--no-wait", action="store_true", help="do not wait for the supervisor's answer")

    _sweep_options(add("sweep", "measure the speed at several concurrencies; without --concurrency: what the last sweep told"))

    status = add("status", "how far a run is")
    wait = add("wait", "wait until a run has ended: 0 finished or stopped, 1 failed, dead or timed out")
    wait.add_argument("--timeout", type=_seconds, metavar="S", help="give up after so many seconds")
    wait.add_argument("--until", default="finished", metavar="GOAL", type=_goal, help="finished, ready or DATASET=STATE")
    listing = add("list", "all runs", run=False)
    for command in (status, listing):
        command.add_argument("--json", action="store_true", help="for programs; docs/cli.md documents the fields")

    _add_logs(add)
    _add_hand_over(add)
    share = add("share", "write a page, a picture and a paragraph about a run, for those who wait for it")
    share.add_argument("--to", metavar="DIR", help="the folder to write into (default: shared/ in the run)")
    share.add_argument("--zone", metavar="NAME", help="whose clock they tell, as Europe/Berlin (default: this machine's)")
    share.add_argument("--json", action="store_true", help="print the files' names and the paragraph for programs")

    dashboard = add("dashboard", "serve the pages on this machine until Ctrl-C; runs go on without them", run=False)
    dashboard.add_argument("--port", type=_port, default=8501, metavar="PORT", help="the first to try (default 8501)")
    dashboard.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="to listen on (default 127.0.0.1)")
    view = add("view", "serve one run to those who only watch, in a process that cannot press anything")
    view.add_argument("--port", type=_port, default=8601, metavar="PORT", help="the first to try (default 8601)")
    view.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="to listen on (default 127.0.0.1)")
    demo = add("demo", "a run to look at, on simulated GPUs, and the dashboard on it", run=False)
    which = demo.add_mutually_exclusive_group()
    which.add_argument("--cpu", action="store_true", help="on the real SGLang instead (after `make engine-cpu`)")
    which.add_argument("--held", action="store_true", help="one of whose datasets is of empty answers, and is held for it")
    demo.add_argument("--port", type=_port, default=8501, metavar="PORT", help="the first to try (default 8501)")
    demo.set_defaults(host="127.0.0.1")
    return parser


def _add_apis(
    add: Callable[[str, str], argparse.ArgumentParser],
) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    route = add("route", "where new requests of a dataset go: to the engine, to an API, or to both (both:API)")
    route.add_argument("to", nargs="+", metavar="[DATASET] local|API", help="API: its name in run.toml")
    route.add_argument("--waiting", action="store_true", help="every dataset that has not begun, in place of DATASET")
    route.add_argument("--all", action="store_true", help="every dataset that is not at its end")
    probe = add("probe", "measure an API with some prompts of the run, within a cap; asks first")
    probe.add_argument("api", metavar="API")
    probe.add_argument("--prompts", type=int, default=32, metavar="N", help="16 to 64 (default 32)")
    probe.add_argument("--cap-usd", type=float, required=True, metavar="USD", help="it never costs more")
    probe.add_argument("--yes", "-y", action="store_true", help="do not ask")
    return route, probe


def _add_logs(add: Callable[[str, str], argparse.ArgumentParser]) -> None:
    logs = add("logs", "the last lines of the supervisor's log")
    logs.add_argument("--follow", "-f", action="store_true", help="print what is added, until interrupted")
    logs.add_argument("--server", metavar="NAME", help="of this replica's server instead")
    logs.add_argument("--lines", "-n", type=_count, default=50, metavar="N", help="how many (default 50)")


def _add_hand_over(add: Callable[[str, str], argparse.ArgumentParser]) -> None:
    export = add("export", "finished samples as files that can be trained on, in a new folder")
    formats = ("messages", "conversations", "sharegpt", "text", "token_ids")
    export.add_argument("--format", required=True, choices=formats, help="how a sample is written")
    export.add_argument("--to", required=True, metavar="FOLDER", help="the folder to make")
    export.add_argument("--dataset", action="append", metavar="DATASET", help="only this one; may be given again")
    export.add_argument("--outcomes", type=_outcomes, default=["ok"], metavar="OUTCOME[,OUTCOME]", help=f"of {_OUTCOMES}")
    export.add_argument("--holdout", type=_share, default=0.02, metavar="SHARE", help="of the prompts (default 0.02)")
    export.add_argument("--parquet", action="store_true", help="Parquet in place of JSONL")
    export.add_argument("--flagged", choices=("leave-out", "keep", "only"), default="leave-out", help="samples with a flag")
    export.add_argument("--keep-duplicates", action="store_true", help="also equal answers to equal prompts")
    export.add_argument("--tokenizer", metavar="FILE", help="for text: a tokenizer.json (default: the model's)")
    export.add_argument("--force", action="store_true", help="replace an export that lies there already")
    export.add_argument("--json", action="store_true", help="for programs: progress and result as lines of JSON")

    adopt = add("adopt", "JSONL files that other scripts made become finished samples of a dataset")
    adopt.add_argument("dataset", metavar="DATASET")
    adopt.add_argument("files", nargs="+", metavar="FILE", help="JSONL, plain or .gz")
    adopt.add_argument("--id-field", metavar="FIELD", help="that holds the sample's id (default: custom_id, id, ...)")
    adopt.add_argument("--prompt-field", metavar="FIELD", help="that holds the prompt (default: messages, prompt, ...)")
    adopt.add_argument("--answer-field", metavar="FIELD", help="that holds the answer (default: response, completion, ...)")
    adopt.add_argument("--finish-reason", choices=("stop", "length"), help="where a file tells none (default: unknown)")
    adopt.add_argument("--model", default="unknown", metavar="NAME", help="where a file tells none (default: unknown)")
    adopt.add_argument("--tokenizer", metavar="FILE", help="a tokenizer.json to count with (default: the model's)")
    adopt.add_argument("--report", metavar="FILE", help="a file to make, with each line that was not adopted")
    adopt.add_argument("--dry-run", action="store_true", help="only say what would be adopted")


def _sweep_options(sweep: argparse.ArgumentParser) -> None:
    sweep.add_argument("--concurrency", type=_levels, metavar="N,N,...", help="requests in flight, ascending: 1,4,8,16,32,48")
    sweep.add_argument("--level-s", type=_seconds, metavar="S", help="the most for one level (default 120)")
    sweep.add_argument("--abort", action="store_true", help="abort what is beyond the first level, in place of waiting for it")
    sweep.add_argument("--import", dest="file", metavar="FILE", help="take the JSONL of sglang.benchmark.serving instead")
    sweep.add_argument("--replicas", type=_replicas, default=1, metavar="N", help="that FILE was measured on (default 1)")
    sweep.add_argument("--json", action="store_true", help="for programs; docs/cli.md documents the fields")
    sweep.add_argument("--no-wait", action="store_true", help="do not wait for the end of the sweep")


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise ValueError(text)
    return seconds


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise ValueError(text)
    return count


def _outcomes(text: str) -> list[str]:
    from backend.records import Outcome

    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or set(names) - set(Outcome):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of outcomes; there are {_OUTCOMES}")
    return names


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share < 1:
        raise ValueError(text)
    return share


def _levels(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _replicas(text: str) -> int:
    count = int(text)
    if count < 1:
        raise ValueError(text)
    return count


def _port(text: str) -> int:
    port = int(text)
    if not 1 <= port <= 65_535:
        raise ValueError(text)
    return port


def _goal(text: str) -> str:
    from backend.report.waiting import parse_goal

    try:
        parse_goal(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


_seconds.__name__ = "number of seconds"
_count.__name__ = "count"
_port.__name__ = "port"
_share.__name__ = "share from 0 to below 1"
_levels.__name__ = "list of whole numbers with commas between"
_replicas.__name__ = "number of replicas"

if __name__ == "__main__":
    sys.exit(main())
