"""What can be wanted, what is refused, and in which words."""

from __future__ import annotations

import pytest

from backend.config import RunConfig
from backend.job import wishes
from backend.job.wishes import RefusedError, Want
from backend.records import Intent, IntentAction, Outcome

CONFIG = RunConfig.model_validate(
    {
        "name": "r",
        "model": {"path": "m"},
        "engine": {"kind": "simulated"},
        "generation": {"concurrency": 7},
        "datasets": [{"name": "B1", "path": "a", "token_budget": 100}, {"name": "B2", "path": "b"}],
        "api": {"o": {"base_url": "https://x/v1", "model": "m", "spend_cap_usd": 5.0}},
    }
)


def _intent(subject: str, action: IntentAction, **value: object) -> Intent:
    return Intent(subject, action, value, "me", 1.0, "t")


def _apply(*intents: Intent) -> wishes.Wishes:
    wanted = wishes.initial(CONFIG)
    for intent in intents:
        wanted, _ = wishes.apply(wanted, intent)
    return wanted


def test_the_configuration_alone_wants_everything_to_run() -> None:
    wanted = wishes.initial(CONFIG)

    assert (wanted.run, wanted.engine, wanted.concurrency, wanted.order) == (Want.RUNNING, Want.RUNNING, 7, ("B1", "B2"))
    assert wanted.datasets["B1"].token_budget == 100
    assert wanted.datasets["B2"].token_budget is None


def test_repeating_an_intent_changes_nothing() -> None:
    pause = _intent("dataset:B1", IntentAction.STATE, want="paused", now=True)

    assert _apply(pause, pause) == _apply(pause)


def test_a_killed_dataset_can_be_revived() -> None:
    killed = _intent("dataset:B1", IntentAction.STATE, want="killed")
    revived = _intent("dataset:B1", IntentAction.STATE, want="running")

    assert _apply(killed).datasets["B1"].want is Want.KILLED
    assert _apply(killed).datasets["B1"].now
    assert _apply(killed, revived).datasets["B1"].want is Want.RUNNING


def test_a_partial_order_puts_the_named_datasets_first() -> None:
    assert _apply(_intent("run", IntentAction.SET, key="order", value=["B2"])).order == ("B2", "B1")


@pytest.mark.parametrize("key", ["B1.token_budget", "datasets.B1.token_budget"])
def test_a_budget_is_changed_and_cleared_while_the_run_goes_on(key: str) -> None:
    assert _apply(_intent("run", IntentAction.SET, key=key, value=5)).datasets["B1"].token_budget == 5
    assert _apply(_intent("run", IntentAction.SET, key=key, value=None)).datasets["B1"].token_budget is None


def test_a_start_takes_back_a_stop_and_wants_the_engine_again() -> None:
    wanted = _apply(
        _intent("run", IntentAction.STATE, want="stopped", now=True),
        _intent("engine", IntentAction.STATE, want="stopped"),
        _intent("run", IntentAction.STATE, want="running"),
    )

    assert (wanted.run, wanted.run_now, wanted.engine) == (Want.RUNNING, False, Want.RUNNING)


def test_a_redo_is_pending_until_it_is_done() -> None:
    wanted = _apply(_intent("dataset:B2", IntentAction.REDO, outcomes=["empty", "degenerate"]))

    assert wanted.datasets["B2"].redo == (Outcome.EMPTY, Outcome.DEGENERATE)
    assert wishes.redo_done(wanted, "B2", wanted.datasets["B2"].redo).datasets["B2"].redo == ()


def test_a_deadline_and_a_cap_can_be_wanted() -> None:
    assert wishes.initial(CONFIG).deadline is None
    at = "2026-12-03T12:00:00+01:00"
    wanted, _ = wishes.apply(wishes.initial(CONFIG), _intent("run", IntentAction.SET, key="deadline", value=at))
    wanted, words = wishes.apply(wanted, _intent("run", IntentAction.SET, key="datasets.B1.max_new_tokens", value=2048))
    assert wanted.deadline == at
    assert wanted.datasets["B1"].max_new_tokens == 2048
    assert words == "B1: max_new_tokens None → 2048."


def test_a_dataset_is_routed_to_an_api_and_back_and_a_cap_is_changed() -> None:
    away = _apply(_intent("dataset:B1", IntentAction.ROUTE, to="both:o"))
    assert (away.datasets["B1"].route.sources, away.datasets["B2"].route.sources) == ({"local", "o"}, {"local"})
    back = wishes.apply(away, _intent("dataset:B1", IntentAction.ROUTE, to="local"))
    assert back == (_apply(), "B1: new requests go to the engine; those in flight finish.")
    assert _apply().api_caps == {"o": 5.0}
    assert _apply(_intent("run", IntentAction.SET, key="api.o.spend_cap_usd", value=None)).api_caps == {"o": None}


def test_a_probe_changes_no_wish_either() -> None:
    asked = _intent("run", IntentAction.PROBE, api="o", prompts=32, cap_usd=1.5)
    wanted = wishes.initial(CONFIG)

    assert wishes.apply(wanted, asked) == (wanted, "32 prompts will be sent to o, for at most $1.5.")


def test_a_sweep_changes_no_wish_so_that_no_later_life_repeats_it() -> None:
    asked = _intent("run", IntentAction.SWEEP, levels=[1, 4])
    wanted = wishes.initial(CONFIG)

    assert wishes.apply(wanted, asked) == (wanted, "A sweep over 1, 4 requests in flight begins.")
    assert wishes.apply(wanted, _intent("run", IntentAction.SWEEP, cancel=True))[0] == wanted
    read = _intent("run", IntentAction.SWEEP, measured=[{"concurrency": 1, "tokens_per_s": 5.0}], source="b.jsonl")
    assert wishes.apply(wanted, read) == (wanted, "The speed curve is that of b.jsonl now (levels: 1).")


@pytest.mark.parametrize(
    ("intent", "words"),
    [
        (
            _intent("dataset:B9", IntentAction.STATE, want="paused"),
            "There is no 'dataset:B9' in this run; its datasets are B1, B2.",
        ),
        (
            _intent("dataset:B1", IntentAction.STATE, want="flying"),
            "dataset:B1 can be running or paused or killed, not 'flying'.",
        ),
        (_intent("engine", IntentAction.STATE, want="paused"), "engine can be running or stopped, not 'paused'."),
        (
            _intent("run", IntentAction.SET, key="concurrency", value=0),
            "0 is not a whole number from 1 to 20,000.",
        ),
        (_intent("run", IntentAction.SET, key="concurrency", value=True), "concurrency: True is not a whole number"),
        (
            _intent("run", IntentAction.SET, key="order", value=["B1", "B1"]),
            "order: ['B1', 'B1'] is no list of this run's datasets",
        ),
        (_intent("run", IntentAction.SET, key="B1.max_samples", value=-1), "B1.max_samples: -1 is neither a whole number"),
        (_intent("run", IntentAction.SET, key="deadline", value="noon"), "deadline: 'noon' is no time with its offset"),
        (_intent("run", IntentAction.SET, key="deadline", value="9999-12-31T23:59-14:00"), "is no time with its offset"),
        (_intent("run", IntentAction.SET, key="deadline", value="2026-12-03T12:00"), "is no time with its offset"),
        (_intent("run", IntentAction.SET, key="engine.tp", value=2), "engine.tp: no such setting, or no such dataset."),
        (_intent("run", IntentAction.SET, key="B1.turns", value="all"), "cannot be set while the run goes on"),
        (_intent("dataset:B1", IntentAction.ROUTE, to="p"), "This run has no API 'p'; its APIs are o."),
        (_intent("dataset:B1", IntentAction.ROUTE), "A route is local, NAME or both:NAME."),
        (_intent("run", IntentAction.PROBE, api="p", prompts=32, cap_usd=1), "This run has no API 'p'; it has o."),
        (_intent("run", IntentAction.PROBE, api="o", prompts=5, cap_usd=1), "A probe takes 16 to 64 prompts, not 5."),
        (_intent("run", IntentAction.PROBE, api="o", prompts=32, cap_usd=0), "A probe needs a cap in USD above 0, not 0."),
        (_intent("run", IntentAction.SET, key="api.p.spend_cap_usd", value=1), "no such setting, or no such API."),
        (_intent("run", IntentAction.SET, key="api.o.spend_cap_usd", value=-1), "-1 is neither an amount in USD nor none."),
        (_intent("run", IntentAction.SWEEP, levels=[4, 1]), "sweep: the levels 4, 1 must ascend, each named once."),
        (_intent("run", IntentAction.SWEEP, measured=[]), "sweep: what was measured is no list of levels."),
        (_intent("dataset:B1", IntentAction.SWEEP, levels=[1]), "A dataset knows no 'sweep' yet."),
        (_intent("dataset:B1", IntentAction.REDO, outcomes=["bad"]), "outcomes are ok, truncated, empty"),
        (_intent("dataset:B1", IntentAction.REDO, outcomes=[]), "name at least one outcome"),
    ],
)
def test_what_cannot_be_is_refused_in_words(intent: Intent, words: str) -> None:
    with pytest.raises(RefusedError) as refusal:
        wishes.apply(wishes.initial(CONFIG), intent)

    assert words in str(refusal.value)
