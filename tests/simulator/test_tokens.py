"""The toy tokenizer."""

from __future__ import annotations

import random

import pytest

from backend.simulator import tokens

_ODD = [
    "",
    "What is 2+2? The answer is 4.",
    "<think>\nLet me see.\n</think>\n\n\\boxed{460}",
    "Grüße, 世界 🎉 \u2028 \x00 \u0085",
    "half of a pair: \ud835 end",
    "\udcff\ud800\ud800",
    "  double  spaces\t\ttabs\r\n",
    "WORDS and words and wOrDs 1234567890 007",
]


@pytest.mark.parametrize("text", _ODD)
def test_decoding_the_ids_of_a_text_gives_the_text(text: str) -> None:
    assert tokens.decode(tokens.encode(text)) == text


def test_random_texts_survive_a_round_trip() -> None:
    rng = random.Random(5)
    letters = "abcXYZ 0129\n<|>/{}\\é世🎉\ud812"
    for _ in range(300):
        text = "".join(rng.choice(letters) for _ in range(rng.randrange(40)))
        assert tokens.decode(tokens.encode(text)) == text


def test_ids_are_stable() -> None:
    # shards written in the past hold these ids: changing them would change what they mean
    assert tokens.encode("<think>\nThe answer is 42.</think>") == [256, 10, 1976, 2446, 1993, 1016, 46, 257]


def test_the_end_token_decodes_to_nothing() -> None:
    assert tokens.decode([*tokens.encode("done"), tokens.END]) == "done"


def test_an_incomplete_last_character_becomes_a_replacement_character() -> None:
    assert tokens.decode([ord("a"), 0xE2, 0x80]) == "a\ufffd"
