"""What is said about a server's version."""

from __future__ import annotations

import pytest

from backend.job.sglang_version import Support, supported_version


@pytest.mark.parametrize(
    ("version", "support"),
    [
        ("0.5.23", Support.FULL),
        ("0.5.0rc1", Support.FULL),
        ("v0.5.4.post1", Support.FULL),
        ("0.4.9", Support.GAPS),
        ("0.3.6", Support.UNTRIED),
        ("0.6.0", Support.UNTRIED),
        ("1.0.0", Support.UNTRIED),
        ("0.0.0.dev1+g0ac6c63ae", Support.UNKNOWN),
        ("main", Support.UNKNOWN),
        (None, Support.UNKNOWN),
    ],
)
def test_each_version_has_its_support_and_is_named(version: str | None, support: Support) -> None:
    verdict = supported_version(version)
    assert verdict.support is support
    assert "0.5.x" in verdict.sentence
    assert version is None or version in verdict.sentence


def test_the_sentence_says_what_is_missing_and_what_to_do() -> None:
    sentence = supported_version("0.4.6").sentence
    assert "live token rates" in sentence
    assert "shown as –" in sentence
    assert "Update SGLang" in sentence
    assert "is newer than" in supported_version("0.6.1").sentence
    assert "is older than" in supported_version("0.3.0").sentence
