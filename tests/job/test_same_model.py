"""Another model is told from another spelling of the same one."""

from __future__ import annotations

import pytest

from backend.job.same_model import is_same_model


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("qwen/qwen3-32b", "qwen/qwen3-32b-04-28"),
        ("gpt-4o", "gpt-4o-2024-08-06"),
        ("gemini-2.0-flash", "gemini-2.0-flash-001"),
        ("qwen/qwen3-8b:free", "qwen/qwen3-8b"),
        ("qwen3-8b", None),
        ("qwen3-8b", ""),
    ],
)
def test_a_date_an_owner_and_the_billing_class_make_no_other_model(asked: str, answered: str | None) -> None:
    assert is_same_model(asked, answered)


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-4B"),
        ("deepseek-v3", "deepseek-v3.1"),
        ("qwen3-8b", "qwen3-8b-fp8"),
        ("gpt-4", "gpt-4-32k"),
        ("qwen3", "qwen3-8b"),
        ("a", "somebody/else"),
    ],
)
def test_a_size_a_version_and_a_quantisation_do(asked: str, answered: str) -> None:
    assert not is_same_model(asked, answered)


def test_a_name_that_runtoml_accepts_is_the_same() -> None:
    assert is_same_model("qwen3-8b", "qwen3-8b-fp8", ["Qwen/Qwen3-8B-FP8"])
