"""Settings that change while a run goes on."""

from __future__ import annotations

from typing import Any

import pytest

from backend.config import ConfigError, RunConfig, parse_live_setting


def config(**engine: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "x",
            "model": {"path": "m"},
            "engine": {"kind": "local"} | engine,
            "generation": {"concurrency": 40},
            "datasets": [{"name": name, "path": "p"} for name in ("B3", "v1.2", "datasets")],
        }
    )


@pytest.mark.parametrize(
    ("key", "text", "canonical", "value"),
    [
        ("concurrency", "150", "concurrency", 150),
        ("generation.concurrency", " 2k ", "concurrency", 2000),
        ("order", "v1.2, B3", "order", ["v1.2", "B3"]),
        ("order", '["datasets"]', "order", ["datasets"]),
        ("B3.token_budget", "10_000_000", "datasets.B3.token_budget", 10_000_000),
        ("datasets.B3.token_budget", "10M", "datasets.B3.token_budget", 10_000_000),
        ("v1.2.max_samples", "5", "datasets.v1.2.max_samples", 5),
        ("datasets.v1.2.max_samples", "none", "datasets.v1.2.max_samples", None),
        ("datasets.token_budget", "None", "datasets.datasets.token_budget", None),
        ("B3.at_budget", "cancel", "datasets.B3.at_budget", "cancel"),
        ("B3.max_new_tokens", "2k", "datasets.B3.max_new_tokens", 2000),
        ("deadline", "2026-12-03T12:00+01:00", "deadline", "2026-12-03T12:00:00+01:00"),
        ("forecast.deadline", "none", "deadline", None),
    ],
)
def test_a_setting_is_read(key: str, text: str, canonical: str, value: Any) -> None:
    assert parse_live_setting(config(), key, text) == (canonical, value)


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("concurrency", "0", 'concurrency: found "0", must be a whole number from 1 to 20000'),
        ("concurrency", "20001", "must be a whole number"),
        ("concurrency", "none", "must be a whole number"),
        ("concurrency", "1.5", "must be a whole number"),
        ("concurrency", "-3", "must be a whole number"),
        ("concurency", "5", "did you mean `concurrency`?"),
        ("port", "5", "no setting that can change while a run goes on"),
        ("order", "", "order: found nothing"),
        ("order", "B3,B4", 'there is no dataset "B4"; known are B3, v1.2, datasets'),
        ("order", "B3,B3", "stands there twice"),
        ("order", "[1]", "there is no dataset 1"),
        ("order", "[[]]", "there is no dataset []"),
        ("order", "[B3", "or a JSON list"),
        ("v12.token_budget", "5", 'there is no dataset "v12", did you mean `v1.2`?'),
        ("B3.tokens_budget", "5", "did you mean `token_budget`?"),
        ("B3.path", "x", "path cannot change while a run goes on"),
        ("B3.token_budget", "0", 'datasets.B3.token_budget: found "0", must be a whole number of at least 1'),
        ("B3.max_samples", "many", "or none"),
        ("B3.max_samples", "٣", "or none"),
        ("B3.max_samples", "9" * 5000, "or none"),
        ("B3.at_budget", "none", "must be drain or cancel"),
        ("B3.max_new_tokens", "0", 'datasets.B3.max_new_tokens: found "0", must be a whole number of at least 1'),
        ("deadline", "2026-12-03T12:00", "must be a time with its offset, as 2026-12-03T12:00+01:00, or none"),
        ("deadline", "0001-01-01T00:00+14:00", "must be a time with its offset"),
        ("deadline", "9999-12-31T23:59:59-14:00", "(years 2000 to 2999)"),
        ("deadline", "tomorrow", 'deadline: found "tomorrow", must be a time with its offset'),
    ],
)
def test_what_cannot_be_set_is_told_why(key: str, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_live_setting(config(), key, text)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_concurrency_that_speculative_decoding_would_cap_is_refused() -> None:
    speculative = config(args=["--speculative-algorithm", "EAGLE"])
    assert parse_live_setting(speculative, "concurrency", "48") == ("concurrency", 48)
    with pytest.raises(ConfigError, match="silently runs 48"):
        parse_live_setting(speculative, "concurrency", "49")
