"""The list that works offline tells prices of known models, with source and date, and nothing of unknown ones."""

from __future__ import annotations

import tomllib
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from backend.costs.prices import Prices
from backend.prices.price_list import list_name, listed_models, listed_prices, listings, plain_name

AT = datetime(2026, 11, 20, tzinfo=UTC)
OPENROUTER = "https://openrouter.ai/api/v1"
ROOT = Path(__file__).resolve().parents[2]


def test_a_price_has_its_value_its_source_and_the_day_since_when_it_holds() -> None:
    found = listed_prices(OPENROUTER, "qwen/qwen3-32b", AT)
    assert found.output_per_mtok is not None
    assert found.output_per_mtok.value == Decimal("0.4")
    assert found.output_per_mtok.source == list_name()
    assert found.output_per_mtok.as_of == date(2026, 11, 3)


def test_an_earlier_day_has_the_price_of_that_day() -> None:
    found = listed_prices(OPENROUTER, "qwen/qwen3-32b", datetime(2026, 10, 25, tzinfo=UTC))
    assert found.output_per_mtok is not None
    assert (found.output_per_mtok.value, found.output_per_mtok.as_of) == (Decimal("0.28"), date(2026, 10, 19))


def test_a_price_whose_first_day_is_not_recorded_is_as_new_as_the_list() -> None:
    found = listed_prices(OPENROUTER, "qwen/qwen3-8b", AT)
    assert found.output_per_mtok is not None
    assert found.output_per_mtok.as_of is not None
    assert date(2026, 11, 1) < found.output_per_mtok.as_of <= AT.date()


@pytest.mark.parametrize(
    ("address", "model"),
    [(OPENROUTER, "nobody/knows-this"), ("http://127.0.0.1:8000/v1", "qwen/qwen3-8b"), (OPENROUTER, "qwen/qwen3-8b:free")],
)
def test_what_the_list_does_not_know_is_unknown_and_not_free(address: str, model: str) -> None:
    assert listed_prices(address, model, AT) == Prices()


@pytest.mark.parametrize("name", ["Qwen/Qwen3-32B", "/models/Qwen3-32B-FP8", "qwen3-32b", "models/Qwen3-32B-AWQ/"])
def test_a_model_is_found_at_several_providers_however_its_folder_is_called(name: str) -> None:
    found = listings(name, AT)
    assert len({each.provider for each in found}) >= 5
    assert "OpenRouter" in {each.provider for each in found}
    outputs = [each.prices.output_per_mtok.value for each in found if each.prices.output_per_mtok]
    assert outputs == sorted(outputs)
    assert not any(each.model.endswith(":free") for each in found)


def test_a_batch_discount_is_a_share_of_the_price_of_now() -> None:
    groq = next(each for each in listings("openai/gpt-oss-120b", AT) if each.provider == "Groq")
    assert groq.prices.batch_discount is not None
    assert groq.prices.batch_discount.value == Decimal("0.5")


def test_a_model_that_nobody_sells_is_found_nowhere() -> None:
    assert listings("tiny", AT) == []


def test_the_list_is_the_pinned_package() -> None:
    pinned = (ROOT / "requirements.txt").read_text()
    assert list_name().replace(" ", "==") in pinned


def test_models_to_compare_with_are_sold_for_money() -> None:
    assert len(listed_models()) > 300
    assert not any(model.endswith((":free", ":batch")) for model in listed_models())
    assert tomllib.loads(f'model = "{listed_models()[0]}"')


def test_a_plain_name_drops_owner_folder_and_quantisation() -> None:
    assert plain_name("/data/Qwen3-8B-FP8-dynamic/") == "qwen3-8b"
    assert plain_name("Qwen/Qwen3-8B") == "qwen3-8b"
