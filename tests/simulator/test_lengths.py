"""How long answers become."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean

import pytest

from backend.simulator.lengths import LengthRule, draw, load_rules, plan_text
from backend.simulator.texts import TextKind


def _lengths(rule: LengthRule, count: int, seed: int = 3) -> list[int]:
    return [rule.length_at(draw(seed, None, f"prompt {index}", 0).length) for index in range(count)]


@pytest.mark.parametrize("log_sd", [0.0, 0.5, 1.0])
def test_the_mean_of_many_lengths_is_the_mean_asked_for(log_sd: float) -> None:
    lengths = _lengths(LengthRule(mean=2000, log_sd=log_sd), 40_000)
    assert mean(lengths) == pytest.approx(2000, rel=0.03)


def test_lengths_by_quantiles_follow_them() -> None:
    rule = LengthRule(quantiles=(10.0, 20.0, 40.0))
    assert [rule.length_at(p) for p in (0.0, 0.25, 0.5, 0.75, 0.999999)] == [10, 15, 20, 30, 40]


def test_the_same_request_gets_the_same_text_and_another_seed_or_occurrence_another() -> None:
    base = draw(1, None, "a prompt", 0)
    assert draw(1, None, "a prompt", 0) == base
    others = [draw(2, None, "a prompt", 0), draw(1, 7, "a prompt", 0), draw(1, None, "a prompt", 1), draw(1, None, "b", 0)]
    assert all(other != base for other in others)


def test_shares_of_bad_texts_are_kept() -> None:
    rules = (LengthRule(empty_share=0.5, loop_share=0.2, unclosed_share=0.1),)
    kinds = [plan_text(rules, f"p{n}", draw(1, None, f"p{n}", 0), thinking=True).kind for n in range(5000)]
    assert kinds.count(TextKind.EMPTY) / 5000 == pytest.approx(0.5, abs=0.03)
    assert kinds.count(TextKind.LOOP) / 5000 == pytest.approx(0.2, abs=0.03)
    assert kinds.count(TextKind.UNCLOSED) / 5000 == pytest.approx(0.1, abs=0.03)


def test_the_first_rule_that_matches_the_prompt_decides(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text(
        json.dumps([{"match": "[code]", "mean": 50, "log_sd": 0}, {"regex": "user\\nQ\\d", "tokens": [7, 7]}]), "utf-8"
    )
    rules = load_rules(str(path), LengthRule(mean=1000, log_sd=0))
    drawn = draw(1, None, "x", 0)
    for prompt, wanted in (("please [code] this", 50), ("user\nQ17", 7), ("anything", 1000)):
        assert plan_text(rules, prompt, drawn, thinking=False).tokens_wanted == wanted


def test_a_file_of_lengths_is_pooled(tmp_path: Path) -> None:
    path = tmp_path / "lengths.jsonl"
    path.write_text('{"family": "a", "tokens": [1, 2]}\n{"tokens": [3]}\n')
    (rule,) = load_rules(str(path), LengthRule())
    assert rule.quantiles == (1, 2, 3)


def test_a_rule_may_take_one_line_of_a_file_of_lengths(tmp_path: Path) -> None:
    (tmp_path / "lengths.jsonl").write_text('{"tokens": [1, 2]}\n{"tokens": [3, 4]}\n')
    path = tmp_path / "rules.json"
    path.write_text('[{"match": "a", "file": "lengths.jsonl", "line": 1}]')
    assert load_rules(str(path), LengthRule())[0].quantiles == (3, 4)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "list of rules"),
        ("[1]", "rule 0"),
        ('[{"men": 3}]', "'men'"),
        ('[{"regex": "("}]', "regex"),
        ('[{"mean": "x"}]', "mean"),
        ("nonsense", "JSON"),
    ],
)
def test_a_wrong_rule_is_named_with_its_file(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "rules.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=words) as caught:
        load_rules(str(path), LengthRule())
    assert str(path) in str(caught.value)
