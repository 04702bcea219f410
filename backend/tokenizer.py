"""The model's own tokenizer, where its `tokenizer.json` lies on this machine. Nothing is ever fetched for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

NAME: Final = "tokenizer.json"


class TokenizerError(Exception):
    """A tokenizer that was named cannot be used; the message says why."""


class ModelTokenizer:
    """Counts and decodes as the model's tokenizer does, in batches."""

    def __init__(self, path: Path) -> None:
        """`path` is a tokenizer.json. Raises TokenizerError."""
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # noqa: BLE001  (the library raises plain Exception for whatever is wrong with the file)
            raise TokenizerError(f"{path} cannot be read as a tokenizer ({error}). Name another one.") from None
        self._tokenizer.no_truncation()  # a file may ask for it; a count that stops at a limit is none
        self._tokenizer.no_padding()

    def counts(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each text has, without any that a template would add."""
        found = self._tokenizer.encode_batch([_readable(text) for text in texts], add_special_tokens=False)
        return [len(encoding.ids) for encoding in found]

    def texts(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each list of ids, with the special tokens in it."""
        return list(self._tokenizer.decode_batch([list(one) for one in ids], skip_special_tokens=False))


def find_tokenizer(model: str) -> Path | None:
    """The tokenizer.json of a model: in its folder, else in the cache that Hugging Face's libraries fill; None without one."""
    folder = Path(os.path.expanduser(model))
    if folder.is_dir():
        return _file(folder / NAME)
    snapshots = _hub_cache() / f"models--{model.replace('/', '--')}" / "snapshots"
    try:
        newest_first = sorted(snapshots.iterdir(), key=lambda place: place.stat().st_mtime, reverse=True)
    except OSError:
        return None
    return next((path for place in newest_first if (path := _file(place / NAME))), None)


def _hub_cache() -> Path:
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    return Path(os.path.expanduser(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")))


def _file(path: Path) -> Path | None:
    return path if path.is_file() else None


def _readable(text: str) -> str:
    """Lone surrogates are no text for the library."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
