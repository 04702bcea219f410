"""Writes what somebody wants as rows of `intents`, and reads what the supervisor answered.

An intent is written whether or not a supervisor lives: it waits for the next one. Only what is plainly wrong (an unknown
dataset, an outcome that does not exist) is refused here; the supervisor decides on the rest.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from backend.control import ControlError
from backend.heartbeat import explain_sqlite, has_table, reading
from backend.records import Intent, IntentAction, Json, Outcome
from backend.run_dir import RunDir, open_state
from backend.runs import nearest

if TYPE_CHECKING:
    from backend.config import RunConfig

ANSWER_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Answer:
    """What the supervisor said to an intent."""

    accepted: bool
    message: str


def new_token() -> str:
    """A token for one wish; a page makes one when it draws a button, so that a double click is one wish."""
    return secrets.token_hex(16)


def want_run(run: RunDir, want: str, who: str, *, now: bool = False, token: str | None = None) -> Intent:
    """The run shall be `running` or `stopped` (`now`: requests in flight are aborted)."""
    value: Json = {"want": want} if want == "running" else {"want": want, "now": now}
    return write_intent(run, "run", IntentAction.STATE, value, who=who, token=token)


def want_engine(run: RunDir, want: str, who: str, *, token: str | None = None) -> Intent:
    """The engine shall be `running` or `stopped`, the run stays as it is."""
    return write_intent(run, "engine", IntentAction.STATE, {"want": want}, who=who, token=token)


def want_dataset(run: RunDir, dataset: str, want: str, who: str, *, now: bool = False, token: str | None = None) -> Intent:
    """A dataset shall be `running`, `paused` (`now`: requests in flight are aborted) or `killed`. Raises ControlError."""
    _refuse_unknown(run, dataset)
    value: Json = {"want": want, "now": now} if want == "paused" else {"want": want}
    return write_intent(run, f"dataset:{dataset}", IntentAction.STATE, value, who=who, token=token)


def want_redo(run: RunDir, dataset: str, outcomes: Sequence[str], who: str, *, token: str | None = None) -> Intent:
    """Samples of these outcomes shall be made again; their old rows stay, superseded. Raises ControlError."""
    _refuse_unknown(run, dataset)
    for outcome in outcomes:
        if outcome not in tuple(Outcome):
            hint = nearest(outcome, [o.value for o in Outcome], what="outcomes")
            raise ControlError(f"There is no outcome {outcome!r}. {hint}")
    if not outcomes:
        raise ControlError(f"Name at least one outcome of {', '.join(Outcome)}.")
    return write_intent(run, f"dataset:{dataset}", IntentAction.REDO, {"outcomes": list(outcomes)}, who=who, token=token)


def want_sweep(
    run: RunDir,
    levels: Sequence[int],
    who: str,
    *,
    level_limit_s: float | None = None,
    drain: bool = True,
    token: str | None = None,
) -> Intent:
    """The concurrency shall be swept over these levels, up to `level_limit_s` each (None: the supervisor's default).

    `drain`: requests in flight beyond the first level finish first, in place of being aborted.
    """
    value: Json = {"levels": list(levels), "drain": drain}
    if level_limit_s is not None:
        value["level_limit_s"] = level_limit_s
    return write_intent(run, "run", IntentAction.SWEEP, value, who=who, token=token)


def want_no_sweep(run: RunDir, who: str, *, token: str | None = None) -> Intent:
    """The sweep that is running shall end; its finished levels stay."""
    return write_intent(run, "run", IntentAction.SWEEP, {"cancel": True}, who=who, token=token)


def want_measured_sweep(run: RunDir, value: Json, who: str, *, token: str | None = None) -> Intent:
    """Levels that another program measured (`serving_benchmark.read_benchmark`) shall be the speed curve."""
    return write_intent(run, "run", IntentAction.SWEEP, value, who=who, token=token)


def want_route(run: RunDir, dataset: str, to: str, who: str, *, token: str | None = None) -> Intent:
    """A dataset's new requests shall go to `local`, to an API, or to both (`both:NAME`). Raises ControlError."""
    _refuse_unknown(run, dataset)
    name = to.removeprefix("both:")
    if to != "local":
        _refuse_unknown_api(run, name)
    return write_intent(run, f"dataset:{dataset}", IntentAction.ROUTE, {"to": to}, who=who, token=token)


def want_probe(run: RunDir, api: str, prompts: int, cap_usd: float, who: str, *, token: str | None = None) -> Intent:
    """An API shall be measured with some prompts, for at most `cap_usd`. Raises ControlError."""
    _refuse_unknown_api(run, api)
    value: Json = {"api": api, "prompts": prompts, "cap_usd": cap_usd}
    return write_intent(run, "run", IntentAction.PROBE, value, who=who, token=token)


def _refuse_unknown_api(run: RunDir, name: str) -> None:
    names = list(load_config(run).api)
    if not names:
        raise ControlError(f"This run has no API: add [api.{name}] with base_url and model to {run.config}, stop and start it.")
    if name not in names:
        raise ControlError(f"There is no API {name!r}. {nearest(name, names, what='APIs')}")


def want_setting(run: RunDir, key: str, text: str, who: str, *, token: str | None = None) -> Intent:
    """A setting shall have another value while the run goes on. Raises ConfigError on a key or value that cannot be."""
    canonical, value = parse_setting(run, key, text)
    return write_intent(run, "run", IntentAction.SET, {"key": canonical, "value": value}, who=who, token=token)


def parse_setting(run: RunDir, key: str, text: str) -> tuple[str, Any]:
    """The canonical key and the value of a live setting, as they will be written. Raises ConfigError."""
    from backend.config import parse_live_setting

    return parse_live_setting(load_config(run), key, text)


def write_intent(run: RunDir, subject: str, action: IntentAction, value: Json, *, who: str, token: str | None = None) -> Intent:
    """Appends an intent and returns it with its id; the same token again returns the first one. Raises ControlError."""
    token = token or new_token()
    try:
        with closing(open_state(run)) as con:
            con.execute(
                "INSERT INTO intents (at, who, subject, action, value, token) VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (token) DO NOTHING",
                (time.time(), who, subject, action.value, json.dumps(value), token),
            )
            row = con.execute("SELECT * FROM intents WHERE token = ?", (token,)).fetchone()
    except sqlite3.Error as error:
        raise ControlError(f"The wish could not be written to {run.state}: {explain_sqlite(error)}") from None
    return Intent(
        subject=row["subject"],
        action=IntentAction(row["action"]),
        value=json.loads(row["value"]),
        who=row["who"],
        at=row["at"],
        token=row["token"],
        id=row["id"],
    )


def last_wish(run: RunDir, subject: str) -> str:
    """What names the last wish of `subject` (its token), so that the next one can be told from it. Raises RunDirError.

    Before the first one that this state.sqlite knows it names how many were ever accepted: also after a loss of
    state.sqlite it names no moment twice.
    """
    with reading(run.state) as con:
        if con is not None and has_table(con, "intents"):
            row = con.execute("SELECT token FROM intents WHERE subject = ? ORDER BY id DESC LIMIT 1", (subject,)).fetchone()
            if row is not None:
                return str(row["token"])
    with reading(run.ledger) as con:
        if con is None or not has_table(con, "accepted_intents"):
            return "none"
        return f"after {con.execute('SELECT MAX(seq) FROM accepted_intents').fetchone()[0]} accepted"


def read_answer(run: RunDir, intent: Intent) -> Answer | None:
    """What the supervisor answered; None as long as it has not. Raises RunDirError."""
    with reading(run.state) as con:
        if con is None or not has_table(con, "intent_answers"):
            return None
        row = con.execute("SELECT accepted, message FROM intent_answers WHERE intent_id = ?", (intent.id,)).fetchone()
    return None if row is None else Answer(bool(row["accepted"]), row["message"])


def await_answer(run: RunDir, intent: Intent, timeout_s: float) -> Answer | None:
    """The same, waiting up to `timeout_s`. Raises RunDirError."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = read_answer(run, intent)
        if answer is not None or time.monotonic() >= deadline:
            return answer
        time.sleep(ANSWER_POLL_S)


def current_setting(run: RunDir, key: str) -> Any:
    """A live setting's value as last accepted, else as configured (canonical key). Raises ConfigError, RunDirError."""
    with reading(run.ledger) as con:
        if con is not None and has_table(con, "accepted_intents"):
            rows = con.execute("SELECT value FROM accepted_intents WHERE action = 'set' ORDER BY seq DESC")
            for value in (json.loads(row["value"]) for row in rows):
                if value.get("key") == key:
                    return value.get("value")
    config = load_config(run)
    if key == "concurrency":
        return config.generation.concurrency
    if key == "order":
        return [d.name for d in config.datasets]
    if key == "deadline":
        return config.forecast.deadline.isoformat(timespec="seconds") if config.forecast.deadline else None
    if key.startswith("api."):
        return config.api[key.removeprefix("api.").removesuffix(".spend_cap_usd")].spend_cap_usd
    name, _, setting = key.removeprefix("datasets.").rpartition(".")
    dataset = config.dataset(name)
    return getattr(config.sampling_for(dataset) if setting == "max_new_tokens" else dataset, setting)


def load_config(run: RunDir) -> RunConfig:
    """The run's frozen configuration. Raises ConfigError."""
    from backend import config

    return config.load(run.config)


def _refuse_unknown(run: RunDir, dataset: str) -> None:
    names = [d.name for d in load_config(run).datasets]
    if dataset not in names:
        raise ControlError(f"The run {run.name} has no dataset {dataset!r}. {nearest(dataset, names, what='datasets')}")
