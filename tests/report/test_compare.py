"""What the page Compare tells of a run, in every situation, and that each figure says where it is from."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from backend.config import validate
from backend.costs.limits import Binding
from backend.prices.models_endpoint import PricesError, kept_file
from backend.records import ApiState, ApiStatus, DatasetState
from backend.report import compare_setup
from backend.report.compare import CompareView, compare_view, plan_for
from backend.report.compare_chart import compare_chart
from backend.report.compare_notes import DIFFERENCES, assumption_lines, plan_sentence
from backend.report.compare_options import ASSUMED, MEASURED, OPENROUTER_URL, Assumed
from backend.report.compare_setup import api_toml, costs_toml, price_addresses, refresh_prices
from backend.report.compare_words import WAY_HEAD, compare_figures, compare_sentence, dataset_rows, way_rows
from backend.run_dir import RunDir
from tests.forecast.made_observation import dataset, lengths, observation
from tests.made_comparison import APIS, RENTED, SOLD, make_compared, write_power, write_probe
from tests.made_forecast import status_of, two_datasets, write_forecast
from tests.made_run import CONFIG, beat, holding_lock, write_open_row


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDir]:
    """With a price of the box, an API with prices and one without."""
    run = make_compared(tmp_path)
    with holding_lock(run, time.time()):
        yield run


def look(run: RunDir, assumed: Assumed | None = None, model: str | None = None) -> CompareView:
    return compare_view(run, time.time(), assumed or Assumed(), model)


def row_of(view: CompareView, name: str) -> dict[str, str]:
    rows = {row[0].partition("\n")[0]: dict(zip(WAY_HEAD, row, strict=True)) for row in way_rows(view)}
    return rows[name]


def test_both_sides_are_told_in_one_sentence(run: RunDir) -> None:
    assert "Staying takes" in (sentence := compare_sentence(look(run)))
    assert "; fast would take" in sentence
    assert sentence.count("$") >= 2


def test_each_way_has_time_cost_speed_limit_break_even_and_where_its_prices_are_from(run: RunDir) -> None:
    view = look(run)
    fast = row_of(view, "fast")
    assert "min" in fast["Time"]
    assert fast["Cost"].startswith("$")
    assert fast["A million tokens"].startswith("$1.43")  # prompts are short
    assert fast["Limited by"] == "600 requests at once"
    assert fast["Pays above"].endswith("a GPU-hour")
    assert fast["Prices"].startswith("$0.10 in, $1.43 out\nrun.toml, ")
    box = row_of(view, "This box")
    assert box["Prices"] == "8 GPUs at $2.50 an hour: $20.00 an hour"
    assert box["Tokens/s"] != "–"


def test_an_api_without_a_price_is_unknown_and_not_free(run: RunDir) -> None:
    unpriced = row_of(look(run), "unpriced")
    assert (unpriced["Cost"], unpriced["A million tokens"], unpriced["Choice"]) == ("unknown", "unknown", "–")
    assert unpriced["Limited by"] == "60 requests a minute"
    assert "run.toml" in unpriced["Prices"]


def test_others_who_sell_the_model_stand_beside_with_the_list_and_its_date(run: RunDir) -> None:
    view = look(run)
    openrouter = row_of(view, "OpenRouter")
    assert view.sold
    assert "genai-prices" in openrouter["Prices"]
    assert "2026" in openrouter["Prices"]
    assert 4 <= len(view.options) <= 10


def test_with_no_api_configured_it_compares_with_list_prices_and_shows_how_to_configure_one(tmp_path: Path) -> None:
    view = look(make_compared(tmp_path, SOLD))
    assert not any(option.configured for option in view.options)
    assert view.best is not None
    assert "Qwen3-32B at " in compare_sentence(view)
    pasted = api_toml(view)
    assert OPENROUTER_URL in pasted
    assert "spend_cap_usd" in pasted


@pytest.mark.parametrize("text", [SOLD, CONFIG])
def test_what_is_to_be_pasted_is_valid(tmp_path: Path, text: str) -> None:
    import tomllib

    run = make_compared(tmp_path, text)
    pasted = run.config.read_text() + "\n" + api_toml(look(run))
    data = tomllib.loads(pasted)
    data["costs"] = tomllib.loads(costs_toml())["costs"]
    settings = validate(data, "pasted")
    assert settings.api["fallback"].api_key_env == "FALLBACK_API_KEY"
    run.config.write_text(pasted)
    assert look(run).best == "fallback" or look(run).way("fallback") is not None


def test_a_model_that_nobody_sells_is_compared_with_others_which_is_said(tmp_path: Path) -> None:
    view = look(make_compared(tmp_path, CONFIG + RENTED))
    assert not view.sold
    assert ", another model," in compare_sentence(view)
    assert len(view.options) >= 3


def test_another_models_list_prices_can_be_asked_for(run: RunDir) -> None:
    models = {option.api.model for option in look(run, model="openai/gpt-oss-120b").options if not option.configured}
    assert all("gpt-oss-120b" in model for model in models)
    assert models


def test_before_the_run_begins_the_api_side_is_told_and_the_boxs_is_not(tmp_path: Path) -> None:
    run = make_compared(tmp_path, begun=False)
    view = look(run)
    assert "not known yet" in compare_sentence(view)
    assert row_of(view, "This box")["Time"] == "–"
    assert "–" not in row_of(view, "fast")["Time"].replace("–", "", 1)
    assert row_of(view, "fast")["Cost"].startswith("$")
    notes = dict(assumption_lines(view))
    assert "no speed is known" in notes["The box's time"]
    assert "Length of the answers" in notes
    assert "from the size of the files" in notes["Length of the prompts"]


def test_a_box_without_a_price_has_a_time_and_an_unknown_cost(tmp_path: Path) -> None:
    view = look(make_compared(tmp_path, SOLD + APIS))
    box = row_of(view, "This box")
    assert box["Time"] != "–"
    assert box["Cost"] == "unknown"
    assert "costs.gpu_hour_usd" in box["Prices"]
    assert "" not in view.front
    assert "gpu_hour_usd" in costs_toml()
    assert compare_chart(view) is not None


def test_an_owned_box_costs_the_power_that_was_measured(tmp_path: Path) -> None:
    run = make_compared(tmp_path, SOLD + APIS + "[costs]\nkwh_usd = 0.3\namortisation_usd_per_hour = 1.1\n")
    assert "not measured" in look(run).box_words
    write_power(run, 500.0, 8)
    view = look(run)
    assert view.case.box.usd_per_hour == Decimal("2.30")
    assert view.box_words == "4.00 kW, measured at the GPUs, at $0.30 a kWh and $1.10 an hour of amortisation: $2.30 an hour"
    assert view.case.box.gpus == 8


def test_how_many_gpus_are_paid_for_comes_from_the_nearest_that_tells(tmp_path: Path) -> None:
    by_hour = SOLD + "[costs]\ngpu_hour_usd = 2\n"
    run = make_compared(tmp_path, by_hour)
    assert "write costs.gpus" in look(run).box_words
    write_power(run, 100.0, 2)
    assert look(run).case.box.gpus == 2
    run.config.write_text(run.config.read_text().replace("[engine]", "[engine]\ngpus = [0, 1, 2, 3]", 1))
    assert look(run).case.box.gpus == 4


def test_what_a_probe_measured_takes_the_place_of_what_was_assumed(run: RunDir) -> None:
    assumed = look(run).way("fast")
    write_probe(run)
    view = look(run)
    measured = view.way("fast")
    assert assumed is not None
    assert measured is not None
    assert (assumed[0].speed_source, measured[0].speed_source) == (ASSUMED, MEASURED)
    assert measured[0].api.speed.tokens_per_s == 80
    assert measured[0].api.cached_share == 0.5
    assert measured[0].api.limits.tokens_per_minute == 2_000_000
    assert "; fast, as measured, would take" in compare_sentence(view)
    assert row_of(view, "fast")["Tokens/s"].endswith("measured")
    assert measured[1].whole.binds in (Binding.TOKENS, Binding.STREAMS)
    words = dict(assumption_lines(view))["fast, measured"]
    assert "80 tokens/s in each answer" in words
    assert "took $0.035, by the prices $0.035" in words
    assert "answers of 1,600 tokens, here 1,590; 50 % of the prompts from its cache" in words
    write_probe(run, lengths_p_value=0.01)
    assert "here 1,590, more apart than chance explains" in dict(assumption_lines(look(run)))["fast, measured"]
    write_probe(run, lengths_p_value=0.4)
    assert "here 1,590, no more apart than by chance" in dict(assumption_lines(look(run)))["fast, measured"]


def test_a_probe_of_another_model_or_without_an_answer_measures_nothing(run: RunDir) -> None:
    write_probe(run, model="another")
    found = look(run).way("fast")
    assert found is not None
    assert found[0].probe is None
    write_probe(run, answered=0, stream_tokens_per_s=None, completion_tokens=None)
    view = look(run)
    found = view.way("fast")
    assert found is not None
    assert found[0].speed_source == ASSUMED
    assert dict(assumption_lines(view))["fast"] == "its probe got no answer to measure"


def test_limits_that_were_learnt_and_datasets_that_went_already_are_told(run: RunDir) -> None:
    status = status_of(two_datasets())
    went = replace(status.datasets[1], route="both:fast")
    learnt = ApiStatus("fast", ApiState.OPEN, tokens_per_minute=300_000)
    beat(run, replace(status, datasets=(status.datasets[0], went), apis=(learnt,)), time.time())
    view = look(run)
    assert row_of(view, "fast")["Limited by"] == "300k tokens a minute"
    assert dict(assumption_lines(view))["Sent already"].startswith("beta to here and fast.")


def test_what_has_gone_is_compared_as_if_it_came_back(run: RunDir) -> None:
    stays = dataset_rows(look(run), "fast")
    seen = two_datasets()
    gone = tuple(replace(d, state=DatasetState.DRAINING) if d.name == "beta" else d for d in seen.datasets)
    write_forecast(run, replace(seen, datasets=gone), time.time())
    status = status_of(seen)
    beat(run, replace(status, datasets=(status.datasets[0], replace(status.datasets[1], route="fast"))), time.time())
    assert dataset_rows(look(run), "fast") == stays


def test_once_all_has_gone_the_boxs_speed_is_not_known(run: RunDir) -> None:
    write_forecast(run, two_datasets(speed_curve=None), time.time())
    status = status_of(two_datasets())
    beat(run, replace(status, datasets=tuple(replace(d, route="fast") for d in status.datasets)), time.time())
    view = look(run)
    assert row_of(view, "This box")["Time"] == "–"
    assert row_of(view, "fast")["Time"] != "–"


def test_what_is_assumed_is_the_readers_to_change(run: RunDir) -> None:
    slow, fast = (look(run, Assumed(speed, 100)).way("OpenRouter") for speed in (25.0, 100.0))
    assert slow is not None
    assert fast is not None
    assert slow[1].whole.seconds is not None
    assert fast[1].whole.seconds is not None
    assert slow[1].whole.seconds.p50 > fast[1].whole.seconds.p50


def test_each_dataset_is_told_in_its_order_against_one_api(run: RunDir) -> None:
    rows = dataset_rows(look(run), "fast")
    assert [row[0] for row in rows] == ["alpha", "beta"]
    assert all(row[1] != "–" and row[3] != "–" and row[2].startswith("$") and row[4].startswith("$") for row in rows)
    assert all(row[5] != "–" and row[6].endswith("a GPU-hour") for row in rows)


def test_a_plan_tells_who_goes_who_stays_and_what_it_costs(run: RunDir) -> None:
    view = look(run)
    soon, late, never = (plan_for(view, "fast", hours * 3600) for hours in (1.0, 1000.0, 0.001))
    assert soon is not None
    assert late is not None
    assert never is not None
    assert plan_sentence(soon, 3600).startswith("All that waits to fast: all done in")
    assert "Likely $" in plan_sentence(soon, 3600)
    assert plan_sentence(never, 3.6).startswith("No way holds 4 s 9 times of 10. The soonest:")
    assert late.holds
    assert plan_for(view, "nobody", 3600) is None


def test_a_plan_without_prices_says_so(run: RunDir) -> None:
    plan = plan_for(look(run), "unpriced", 24 * 3600.0)
    assert plan is not None
    if plan.goes:
        assert "not known, as a price is not" in plan_sentence(plan, 24 * 3600.0)


def test_a_paused_dataset_counts_as_if_resumed_and_a_killed_one_does_not(tmp_path: Path) -> None:
    three = [
        dataset("alpha"),
        dataset("beta", state="paused", finished_lengths=lengths(50)),
    ]
    view = look(make_compared(tmp_path, seen=observation(three)))
    assert view.resumed == ("beta",)
    assert dict(assumption_lines(view))["Paused"] == "beta: counted as if resumed now"
    killed = [three[0], replace(three[1], state=DatasetState.KILLED)]
    view = look(make_compared(tmp_path / "killed", seen=observation(killed)))
    assert view.left_out == ("beta",)
    assert [row[0] for row in dataset_rows(view, "fast")] == ["alpha"]


def test_a_finished_run_has_nothing_to_send(tmp_path: Path) -> None:
    done = [replace(d, state=DatasetState.DONE) for d in two_datasets().datasets]
    view = look(make_compared(tmp_path, seen=replace(two_datasets(), datasets=tuple(done))))
    assert view.comparison is None
    assert compare_sentence(view) == "Nothing waits to be made, so there is nothing to send elsewhere."
    assert (compare_figures(view), way_rows(view), assumption_lines(view), compare_chart(view)) == ([], [], [], None)


def test_where_nobody_works_what_was_in_flight_is_made_again(tmp_path: Path) -> None:
    dead = look(make_compared(tmp_path))
    assert dead.comparison is not None
    assert dead.comparison.finishing is None


def test_prompts_are_as_long_as_those_that_were_sent(run: RunDir) -> None:
    for i in range(4):
        write_open_row(run, "alpha", f"alpha-{i}", 100)
    view = look(run)
    assert view.case.texts.prompt_tokens["alpha"] == 10
    assert view.prompts_words.startswith("of beta from the size of the files")


def test_the_chart_tells_every_way_with_a_time_and_a_cost(run: RunDir) -> None:
    figure = compare_chart(look(run), dark=True)
    assert figure is not None
    names = [trace.hovertemplate.partition("</b>")[0] for trace in figure.data if trace.hovertemplate]
    assert "<b>This box" in names
    assert "<b>fast" in names
    assert "<b>unpriced" not in names
    front = figure.data[0]
    assert list(front.x) == sorted(front.x)
    assert list(front.y) == sorted(front.y, reverse=True)
    assert 2 <= len(figure.layout.xaxis.tickvals) <= 7


def test_the_differences_that_no_price_shows_are_all_named() -> None:
    words = " ".join(f"{what} {why}" for what, why in DIFFERENCES)
    for each in ("ids", "quantise", "stop rules", "leave the box", "terms", "draft model"):
        assert each in words


def test_fetched_prices_outrank_the_list(run: RunDir) -> None:
    kept = kept_file(OPENROUTER_URL)
    kept.parent.mkdir(parents=True)
    models = {"qwen/qwen3-32b": {"input_per_mtok": "1", "output_per_mtok": "7"}}
    kept.write_text(json.dumps({"source": f"{OPENROUTER_URL}/models", "fetched_at": time.time(), "models": models}))
    assert row_of(look(run), "OpenRouter")["Prices"].startswith("$1.00 in, ")
    assert f"{OPENROUTER_URL}/models" in row_of(look(run), "OpenRouter")["Prices"]


def test_a_refresh_asks_each_provider_once_and_tells_what_came_of_it(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetch(address: str, now: float) -> int:
        asked.append(address)
        if "unpriced" in address:
            raise PricesError("It tells no price.")
        return 7

    monkeypatch.setattr(compare_setup, "fetch_prices", fetch)
    addresses = price_addresses(look(run))
    assert addresses == ["https://fast.example/v1", "https://unpriced.example/v1", OPENROUTER_URL]
    told = refresh_prices(addresses, time.time())
    assert asked == addresses
    assert told[0] == "https://fast.example/v1: prices of 7 models."
    assert told[1] == "It tells no price."


def test_the_figures_tell_break_even_and_from_which_deadline_on_the_box_will_do(run: RunDir) -> None:
    figures = {figure.key: figure for figure in compare_figures(look(run))}
    assert list(figures) == ["waits", "box", "api", "speed", "even", "deadline"]
    assert figures["even"].value.startswith("$")
    assert "fast" in figures["deadline"].note
