"""The model's tokenizer: found in its folder or in the cache of Hugging Face's libraries, never fetched."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from backend.tokenizer import ModelTokenizer, TokenizerError, find_tokenizer


def write(path: Path) -> Path:
    tokenizer = Tokenizer(WordLevel({"<unk>": 0, "<s>": 1, "one": 2, "two": 3}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.enable_truncation(2)
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path))
    return path


def test_it_counts_whole_texts_and_decodes_with_special_tokens(tmp_path: Path) -> None:
    tokenizer = ModelTokenizer(write(tmp_path / "tokenizer.json"))
    assert tokenizer.counts(["one two one", "", "one \ud800"]) == [3, 0, 2]
    assert tokenizer.texts([[1, 2, 3], []]) == ["<s> one two", ""]


def test_it_is_found_in_the_models_folder_else_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    own = write(tmp_path / "model/tokenizer.json")
    cached = write(tmp_path / "hf/hub/models--Some--Model/snapshots/abc/tokenizer.json")
    (tmp_path / "bare").mkdir()
    assert find_tokenizer(str(own.parent)) == own
    assert find_tokenizer("Some/Model") == cached
    assert find_tokenizer("Some/Other") is None
    assert find_tokenizer(str(tmp_path / "bare")) is None


def test_a_file_that_is_none_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json cannot be read as a tokenizer"):
        ModelTokenizer(tmp_path / "tokenizer.json")
