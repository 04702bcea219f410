"""What tests of exports share."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace


@pytest.fixture
def word_tokenizer(tmp_path: Path) -> Path:
    """A tokenizer.json that knows five words."""
    words = {"<unk>": 0, "<s>": 1, "</s>": 2, "one": 3, "two": 4}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    return path
