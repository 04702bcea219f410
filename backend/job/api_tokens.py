"""How many tokens a text has at an API: by the model's own tokenizer where it lies on this machine, else by what answers so far
had. Only estimates come from here; where the API counts, its count holds."""

from __future__ import annotations

from dataclasses import dataclass

from backend.tokenizer import ModelTokenizer, TokenizerError, find_tokenizer

CHARACTERS_PER_TOKEN = 4.0  # until answers with a count have come
FORGET_AT_TOKENS = 2_000_000  # the older half is forgotten then


@dataclass(slots=True)
class _Ratio:
    """Characters (or bytes) to tokens, over what was counted."""

    size: float = CHARACTERS_PER_TOKEN * 100
    tokens: float = 100.0

    def learn(self, size: int, tokens: int) -> None:
        self.size, self.tokens = self.size + size, self.tokens + tokens
        if self.tokens > FORGET_AT_TOKENS:
            self.size, self.tokens = self.size / 2, self.tokens / 2

    def of(self, size: int) -> int:
        return max(1, round(size * self.tokens / self.size)) if size else 0


class TokenGuess:
    """Estimates for one model."""

    def __init__(self, model_path: str) -> None:
        """`model_path` as in run.toml: a folder or an id, whose tokenizer is looked for on this machine when it is needed."""
        self._model_path = model_path
        self._tokenizer: ModelTokenizer | None = None
        self._looked = False
        self._answers, self._prompts = _Ratio(), _Ratio()

    def learn(self, *, body_bytes: int, prompt_tokens: int | None, characters: int, completion_tokens: int | None) -> None:
        """An answer that was counted."""
        if prompt_tokens:
            self._prompts.learn(body_bytes, prompt_tokens)
        if completion_tokens and characters:
            self._answers.learn(characters, completion_tokens)

    def of_prompt(self, body_bytes: int) -> int:
        """Prompt tokens of a request whose body is so long."""
        return self._prompts.of(body_bytes)

    def of_answer(self, text: str) -> int:
        """Completion tokens of an answer, its end token included. May take long for a long text: fit for a thread."""
        if not text:
            return 0
        tokenizer = self._find()
        return tokenizer.counts([text])[0] + 1 if tokenizer is not None else self._answers.of(len(text))

    def of_characters(self, characters: int) -> int:
        """The same by length alone, at once."""
        return self._answers.of(characters)

    def _find(self) -> ModelTokenizer | None:
        if not self._looked:
            self._looked = True
            path = find_tokenizer(self._model_path)
            try:
                self._tokenizer = None if path is None else ModelTokenizer(path)
            except TokenizerError:
                self._tokenizer = None  # it is of use, not needed
        return self._tokenizer
