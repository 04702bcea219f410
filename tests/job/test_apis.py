"""Every row of "the API says, Headway does", against the simulator's API; and that the bill is right to the last figure."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from backend.job.api_in_flight import Noted
from backend.records import ApiState, DatasetState, Intent, IntentAction
from backend.simulator.settings import Prices
from tests.job.api_job import ApiJob, api_job

PROMPTS = [f"What is {n} plus {n}?" for n in range(40)]


def check_bill(job: ApiJob) -> None:
    """Rows and billed failures, the account and the simulator's own bill are one sum; each sample is there once."""
    billed = float(job.server.bill.usd)
    assert job.booked_usd() == pytest.approx(billed, abs=1e-10)
    assert job.status.spent_usd == pytest.approx(billed, abs=1e-10)
    assert set(Counter((row.dataset, row.sample_id) for row in job.rows()).values()) == {1}


async def test_rows_of_an_api_say_where_they_are_from_and_what_they_cost(tmp_path: Path) -> None:
    async with api_job(tmp_path, {"A": PROMPTS}) as job:
        await job.until(lambda: job.finished() == 40)
        check_bill(job)
        row = job.rows()[0]
        assert (row.source, row.model, row.server_epoch) == ("a", "sim/model", "a:Simulated Inference")
        assert row.cost_usd
        assert row.reasoning
        assert row.answer
        assert row.reasoning_tokens
        assert (row.output_ids, row.tokens_estimated) == (None, False)
        assert row.first_token_at is not None
        assert row.started_at <= row.first_token_at <= row.finished_at
        assert job.status.reserved_usd == job.status.unsure_usd == 0
        assert len(job.journal) == 0


async def test_cached_tokens_are_charged_at_their_price_and_reasoning_is_not_added(tmp_path: Path) -> None:
    """Without `usage.cost` it is the price list that must come to the simulator's bill."""
    async with api_job(tmp_path, {"A": ["The same long beginning. " * 40 + prompt for prompt in PROMPTS[:10]]}) as job:
        job.fault("cost-missing")
        await job.until(lambda: job.finished() == 10)
        check_bill(job)
        assert any(row.cached_tokens for row in job.rows())


@pytest.mark.parametrize(("fault", "words"), [("http-401", "Incorrect API key"), ("http-402", "Insufficient credits")])
async def test_a_refused_key_or_balance_pauses_the_route_and_it_goes_on_when_mended(
    tmp_path: Path, fault: str, words: str
) -> None:
    async with api_job(tmp_path, {"A": PROMPTS}) as job:
        job.fault(fault)
        await job.until(lambda: job.status.state is ApiState.PAUSED)
        assert words in (job.status.reason or "")
        await job.until(lambda: job.status.in_flight == 0)
        seen = sum(job.server.engine.counts.http_requests.values())
        await asyncio.sleep(0.3)
        assert sum(job.server.engine.counts.http_requests.values()) <= seen + 1  # it is left alone
        assert job.finished() == 0
        job.fault(fault, on=False)
        job.apis.accepted(Intent("dataset:A", IntentAction.STATE, {"want": "running"}, "test", 0.0, "t"))
        await job.until(lambda: job.finished() == 40)
        assert job.status.state is not ApiState.PAUSED
        check_bill(job)


async def test_a_paused_route_finds_out_by_itself_that_it_was_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.job.api_route.FIRST_TRY_AFTER_S", 0.2)
    monkeypatch.setattr("backend.job.api_route.LOOK_AGAIN_S", 0.05)
    async with api_job(tmp_path, {"A": PROMPTS}) as job:
        job.fault("http-402")
        await job.until(lambda: job.status.state is ApiState.PAUSED)
        job.fault("http-402", on=False)
        await job.until(lambda: job.finished() == 40)
        check_bill(job)


async def test_a_missing_key_file_pauses_the_route_until_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.job.api_route.FIRST_TRY_AFTER_S", 0.2)
    monkeypatch.setattr("backend.job.api_route.LOOK_AGAIN_S", 0.05)
    key = tmp_path / "key"
    async with api_job(tmp_path, {"A": PROMPTS}, api={"api_key_file": str(key)}, server={"api_key": "sk-secret-1"}) as job:
        await job.until(lambda: job.status.state is ApiState.PAUSED)
        assert str(key) in (job.status.reason or "")
        key.write_text("sk-secret-1\n")
        await job.until(lambda: job.finished() == 40)
        assert "sk-secret-1" not in repr((job.status, job.events, job.rows(), job.run.in_flight.read_text()))


@pytest.mark.parametrize("kind", ["", "retry-in-words", "retry-after-date"])
async def test_a_429_is_waited_for_as_long_as_it_says_and_costs_nothing(tmp_path: Path, kind: str) -> None:
    async with api_job(tmp_path, {"A": PROMPTS}) as job:
        job.fault("http-429", "0.3")
        if kind:
            job.fault(kind)
        await job.until(lambda: job.status.refused > 0)
        job.fault("http-429", on=False)
        await job.until(lambda: job.finished() == 40)
        assert not any(row.finish_reason == "rejected" for row in job.rows())
        check_bill(job)


async def test_limits_are_learnt_from_headers(tmp_path: Path) -> None:
    async with api_job(tmp_path, {"A": PROMPTS}, server={"tokens_per_minute": 5_000_000, "requests_per_minute": 9_000}) as job:
        await job.until(lambda: job.finished() == 40)
        assert (job.status.requests_per_minute, job.status.tokens_per_minute) == (9_000, 5_000_000)


@pytest.mark.parametrize("fault", ["http-500", "http-503", "disconnect"])
async def test_what_may_pass_is_tried_again_and_costs_nothing(tmp_path: Path, fault: str) -> None:
    async with api_job(tmp_path, {"A": PROMPTS}) as job:
        job.fault(fault, "0.5")
        await job.until(lambda: job.runners["A"].retries > 3)
        job.fault(fault, on=False)
        await job.until(lambda: job.finished() == 40)
        check_bill(job)


@pytest.mark.parametrize("fault", ["cut-stream", "stream-error", "stall-stream"])
async def test_a_stream_that_breaks_is_made_again_and_what_it_cost_is_booked(
    tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.job.api_billing.LOOKUP_AFTER_S", (0.1, 0.2, 0.4, 0.8))
    async with api_job(tmp_path, {"A": PROMPTS}, api={"stall_after_s": 0.5}, mean=150) as job:
        job.fault(fault, "0.5")
        await job.until(lambda: job.status.refused == 0 and job.apis.slots["a"].route.counts.failed > 3)
        job.fault(fault, on=False)
        await job.until(lambda: job.finished() == 40)
        await job.until(job.is_settled)
        assert {bill["outcome"] for bill in job.bills()} == {"failed"}
        assert sum(bill["cost_usd"] for bill in job.bills()) > 0
        assert job.status.unsure_usd == 0
        check_bill(job)


async def test_where_no_bill_can_be_had_the_worst_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.job.api_billing.LOOKUP_AFTER_S", ())
    async with api_job(tmp_path, {"A": PROMPTS}, mean=150) as job:
        job.fault("cut-stream", "0.5")
        await job.until(lambda: job.apis.slots["a"].route.counts.failed > 3)
        job.fault("cut-stream", on=False)
        await job.until(lambda: job.finished() == 40 and job.is_settled())
        assert {bill["outcome"] for bill in job.bills()} == {"failed, estimated"}
        assert job.status.spent_usd is not None
        assert job.status.spent_usd + job.status.unsure_usd >= float(job.server.bill.usd) > 0
        await job.ledger.flush()
        kept = float(job.ledger.get_fact("api_unsure_usd:a") or 0)
        assert kept == pytest.approx(job.status.unsure_usd)


@pytest.mark.parametrize("fault", ["flagged-403", "reject-400"])
async def test_a_prompt_that_is_refused_for_good_is_a_row_with_the_words(tmp_path: Path, fault: str) -> None:
    async with api_job(tmp_path, {"A": PROMPTS}) as job:
        job.fault(fault, "0.3")
        await job.until(lambda: job.finished() == 40)
        rejected = [row for row in job.rows() if row.finish_reason == "rejected"]
        assert 3 <= len(rejected) <= 30
        assert {(row.source, row.cost_usd) for row in rejected} == {("a", 0.0)}
        assert all(row.error and row.error.startswith("HTTP 40") for row in rejected)
        check_bill(job)


async def test_a_prompt_that_always_fails_is_given_up_after_its_tries(tmp_path: Path) -> None:
    driver = {"max_retries": 2, "retry_backoff_s": 0.01, "retry_backoff_max_s": 0.02}
    async with api_job(tmp_path, {"A": PROMPTS[:3]}, driver=driver) as job:
        job.fault("http-500")
        await job.until(lambda: job.finished() == 3)
        assert all("given up after 3 tries" in (row.error or "") for row in job.rows())


async def test_missing_usage_is_counted_here_and_marked(tmp_path: Path) -> None:
    async with api_job(tmp_path, {"A": PROMPTS}) as job:
        job.fault("usage-null", "0.5")
        await job.until(lambda: job.finished() == 40)
        estimated = [row for row in job.rows() if row.tokens_estimated]
        assert 5 <= len(estimated) <= 35
        assert all(row.completion_tokens > 0 and row.prompt_tokens and row.cost_usd for row in estimated)
        view = job.status
        assert view.spent_usd is not None
        assert view.spent_usd + view.unsure_usd >= float(job.server.bill.usd)


async def test_another_model_holds_the_dataset_with_the_words_and_a_route_to_local_frees_it(tmp_path: Path) -> None:
    async with api_job(tmp_path, {"A": PROMPTS, "B": PROMPTS}) as job:
        job.fault("other-model")
        await job.until(lambda: job.runners["A"].held_for is not None)
        assert "'somebody/else'" in (job.runners["A"].held_for or "")
        assert "'sim/model' was asked for" in (job.runners["A"].held_for or "")
        await job.until(lambda: job.status.in_flight == 0)
        assert job.rows() == []
        job.route("A", "local")
        assert job.runners["A"].held_for is None


async def test_a_name_that_is_accepted_holds_nothing(tmp_path: Path) -> None:
    async with api_job(tmp_path, {"A": PROMPTS[:5]}, api={"accept_models": ["somebody/else"]}) as job:
        job.fault("other-model")
        await job.until(lambda: job.finished() == 5)
        assert {row.model for row in job.rows()} == {"somebody/else"}


async def test_no_content_with_length_is_an_outcome_like_any_other(tmp_path: Path) -> None:
    async with api_job(tmp_path, {"A": PROMPTS[:5]}) as job:
        job.fault("content-null-length")
        await job.until(lambda: job.finished() == 5)
        assert {(row.finish_reason, row.answer) for row in job.rows()} == {("length", "")}
        check_bill(job)


async def test_near_the_cap_concurrency_shrinks_at_the_cap_it_pauses_and_a_higher_one_goes_on(tmp_path: Path) -> None:
    """A request costs $0.0007 at worst and a fifth of that as a rule."""
    async with api_job(tmp_path, {"A": PROMPTS}, api={"spend_cap_usd": 0.004}) as job:
        most = 0
        while job.status.state is not ApiState.CAPPED:
            view = job.status
            assert view.spent_usd is not None
            assert view.spent_usd + view.unsure_usd + view.reserved_usd <= 0.004
            most = max(most, view.in_flight)
            await asyncio.sleep(0)
            job.apis.update(job.wishes, admitting=True)
        await job.until(lambda: not job.apis.slots["a"].requests)
        assert 2 <= most <= 6
        assert "its cap of $0.004 is reached" in (job.status.reason or "")
        assert float(job.server.bill.usd) <= 0.004
        done = job.finished()
        assert 0 < done < 40
        check_bill(job)
        job.wishes = type(job.wishes)(**{**_fields(job.wishes), "api_caps": {"a": 1.0}})
        await job.until(lambda: job.finished() == 40)
        check_bill(job)


async def test_an_api_that_is_dearer_than_its_prices_say_is_kept_below_the_cap_all_the_same(tmp_path: Path) -> None:
    """Reservations grow with what was really charged, so that fewer requests are open than the prices would allow."""
    dearer = Prices(input_usd_per_mtok=1.5, output_usd_per_mtok=6.0)
    async with api_job(tmp_path, {"A": PROMPTS}, api={"spend_cap_usd": 0.012}, server={"prices": dearer}) as job:
        await job.until(lambda: job.status.state is ApiState.CAPPED and not job.apis.slots["a"].requests)
        assert job.finished() < 40
        assert float(job.server.bill.usd) <= 0.012
        check_bill(job)


async def test_a_token_budget_holds_at_an_api(tmp_path: Path) -> None:
    prompts = [f"What is {n} plus {n}?" for n in range(2_000)]
    async with api_job(tmp_path, {"A": prompts}, dataset={"token_budget": 30_000}, api={"concurrency": 32}) as job:
        await job.until(lambda: job.runners["A"].limit_reached() is not None)
        assert job.ledger.totals("A").completion_tokens == pytest.approx(30_000, rel=0.03)


async def test_without_a_price_no_cap_could_be_kept_and_nothing_is_sent(tmp_path: Path) -> None:
    unknown = {"output_usd_per_mtok": None, "input_usd_per_mtok": None, "cached_input_usd_per_mtok": None, "spend_cap_usd": 1}
    async with api_job(tmp_path, {"A": PROMPTS}, api=unknown) as job:
        await job.until(lambda: job.status.state is ApiState.CAPPED)
        assert "is not known, so that no cap could be kept" in (job.status.reason or "")
        job.apis.accepted(Intent("run", IntentAction.SET, {"key": "concurrency", "value": 4}, "test", 0.0, "t"))
        assert told_of_pause(job) == (True, "a gets requests again.")  # nothing was sent: it still gets none
        job.route("A", "local")
        assert told_of_pause(job) == (False, "Nothing that is left is sent to a.")
        assert job.status.state is ApiState.IDLE
        assert not job.server.engine.counts.http_requests


async def test_without_a_price_and_a_cap_the_apis_own_word_is_the_cost(tmp_path: Path) -> None:
    unknown = {"output_usd_per_mtok": None, "input_usd_per_mtok": None, "cached_input_usd_per_mtok": None}
    async with api_job(tmp_path, {"A": PROMPTS[:5], "B": PROMPTS[:5]}, api=unknown) as job:
        await job.until(lambda: job.finished("A") == job.finished("B") == 5)
        check_bill(job)
    job_folder = tmp_path / "second"
    job_folder.mkdir()
    async with api_job(job_folder, {"A": PROMPTS[:5]}, api=unknown) as job:
        job.fault("cost-missing")
        await job.until(lambda: job.finished() == 5)
        assert {row.cost_usd for row in job.rows()} == {None}
        assert (job.status.spent_usd, job.status.unpriced) == (None, 5)


async def test_requests_in_flight_finish_where_they_are_when_the_route_changes(tmp_path: Path) -> None:
    async with api_job(tmp_path, {"A": PROMPTS}, server={"speed": 20}) as job:
        await job.until(lambda: job.status.in_flight >= 20)
        flying = job.status.in_flight
        job.route("A", "local")
        await job.until(lambda: not job.apis.slots["a"].requests)
        assert job.finished() >= flying
        assert job.finished() < 40
        check_bill(job)
        assert job.status.state is ApiState.IDLE
        job.route("A", "both:a")
        await job.until(lambda: job.finished() == 40)
        check_bill(job)


async def test_what_is_aborted_is_booked_and_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.job.api_billing.LOOKUP_AFTER_S", (0.1, 0.2, 0.4, 0.8))
    async with api_job(tmp_path, {"A": PROMPTS}, server={"speed": 20}) as job:
        await job.until(lambda: job.status.in_flight >= 20)
        job.apis.abort("A")
        await job.until(lambda: job.finished() == 40)
        await job.until(job.is_settled)
        assert {bill["outcome"].partition(",")[0] for bill in job.bills()} == {"aborted"}
        assert job.status.spent_usd is not None
        assert job.status.spent_usd + job.status.unsure_usd >= float(job.server.bill.usd) - 1e-10


async def test_what_was_in_flight_when_a_supervisor_was_killed_counts_against_the_cap(tmp_path: Path) -> None:
    async with api_job(tmp_path, {"A": PROMPTS}, api={"spend_cap_usd": 1.0}) as job:
        await job.until(lambda: job.finished() == 40)
        spent = job.status.spent_usd
        job.journal.add("r" * 32, Noted("a", 0.25, "A", 1, "not made yet: ü").word())
        job.journal.add("t" * 32, Noted("a", 0.5, "A", 1, job.rows()[0].sample_id).word())  # its row is there, with its cost
        job.journal.add("s" * 32, "0")
    async with api_job(tmp_path, {"A": PROMPTS}, api={"spend_cap_usd": 1.0}) as job:
        view = job.status
        assert (view.spent_usd, view.unsure_usd, view.finished_samples) == (pytest.approx(spent), 0.25, 40)
        assert job.journal.requests() == {"s" * 32: "0"}
        assert any(kind == "api.former_requests" and "$0.2500" in words for kind, words in job.events)
    async with api_job(tmp_path, {"A": PROMPTS}, api={"spend_cap_usd": 1.0}) as job:
        assert job.status.unsure_usd == 0.25


async def test_a_probe_measures_within_its_cap_and_its_samples_are_kept(tmp_path: Path) -> None:
    from backend.probes import read_probes

    async with api_job(tmp_path, {"A": PROMPTS, "B": PROMPTS}, routed=False, server={"speed": 2}) as job:
        value = {"api": "a", "prompts": 16, "cap_usd": 0.05}
        job.apis.accepted(Intent("run", IntentAction.PROBE, value, "test", 0.0, "t"))
        await job.until(lambda: read_probes(job.run), limit_s=40)
        probe = read_probes(job.run)["a"]
        assert (probe.asked, probe.answered, probe.failed) == (16, 16, 0)
        assert (job.finished("A"), job.finished("B")) == (8, 8)
        assert {row.source for row in job.rows()} == {"a"}
        assert probe.cost_usd is not None
        assert float(probe.cost_usd) == pytest.approx(float(job.server.bill.usd))
        assert probe.cost_by_prices_usd == pytest.approx(probe.cost_usd)
        assert probe.first_token_s
        assert probe.stream_tokens_per_s
        assert probe.stream_tokens_per_s == pytest.approx(job.server.settings.curve.at(1) * 2, rel=0.4)
        assert probe.lengths_p_value is None  # the engine has made nothing to compare with
        assert job.status.probing is False
        await job.until(lambda: "api.probed" in dict(job.events))
        assert dict(job.events)["api.probed"].startswith("a was probed: 16 of 16")
        assert job.runners["A"].state is DatasetState.WAITING


async def test_a_probe_ends_when_its_cap_leaves_no_room(tmp_path: Path) -> None:
    from backend.probes import read_probes

    async with api_job(tmp_path, {"A": PROMPTS}, routed=False) as job:
        value = {"api": "a", "prompts": 16, "cap_usd": 0.0015}
        job.apis.accepted(Intent("run", IntentAction.PROBE, value, "test", 0.0, "t"))
        await job.until(lambda: read_probes(job.run), limit_s=40)
        probe = read_probes(job.run)["a"]
        assert 2 <= probe.answered < 16
        assert float(job.server.bill.usd) <= 0.0015
        await job.until(lambda: "api.probed" in dict(job.events))
        assert "its cap of $0.0015 leaves no room" in dict(job.events)["api.probed"]
        check_bill(job)


async def test_a_probe_that_another_model_answers_says_so_and_what_it_cost(tmp_path: Path) -> None:
    async with api_job(tmp_path, {"A": PROMPTS}, routed=False) as job:
        job.fault("other-model")
        value = {"api": "a", "prompts": 16, "cap_usd": 0.05}
        job.apis.accepted(Intent("run", IntentAction.PROBE, value, "test", 0.0, "t"))
        await job.until(lambda: "api.probed" in dict(job.events), limit_s=40)
        words = dict(job.events)["api.probed"]
        asked = re.match(r"a was probed: 0 of (\d+) prompts answered", words)
        assert asked is not None, words
        assert int(asked[1]) >= 1
        assert f"${float(job.server.bill.usd):.6f} paid for answers that could not be kept" in words
        assert "It ended early: 'somebody/else' answered, and 'sim/model' was asked for." in words


def told_of_pause(job: Any) -> tuple[bool, str]:
    """Whether it is told that the API gets nothing, and what is told when that is over."""
    (one,) = [each for each in job.apis.conditions(job.wishes) if each.kind == "api.paused"]
    return one.problem is not None, one.over


def _fields(value: object) -> dict[str, object]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}  # type: ignore[attr-defined]
