"""How long an answer becomes and what kind of text it is, per dataset, as a pure function of the prompt.

The server sees only messages, so a rule tells by the prompt's text which dataset a request is of. Equal (seed, request seed,
prompt, occurrence) give equal texts: a prompt that is sent again after a crash is answered with the same length.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import orjson

from backend.simulator.texts import TextKind, TextPlan

_NORMAL = NormalDist()
_SCALE = float(2**64)


@dataclass(frozen=True, slots=True)
class LengthRule:
    """Lengths of the requests whose prompt contains `match` ("" is in every one) and, if there is a `regex`, has a match of it.

    Log-normal with `mean` tokens and `log_sd`, or by `quantiles`: lengths at evenly spaced probabilities.
    The shares are of all requests of the rule and add up to at most 1.
    """

    match: str = ""
    mean: float = 2000.0
    log_sd: float = 1.0
    quantiles: tuple[float, ...] = ()
    empty_share: float = 0.0
    loop_share: float = 0.0
    unclosed_share: float = 0.0
    reasoning_share: float = 0.75
    tool_share: float = 0.7
    regex: re.Pattern[str] | None = None

    def matches(self, prompt: str) -> bool:
        return self.match in prompt and (self.regex is None or self.regex.search(prompt) is not None)

    def length_at(self, probability: float) -> int:
        """Tokens, at least 1, the end token included."""
        if self.quantiles:
            place = probability * (len(self.quantiles) - 1)
            low = min(int(place), len(self.quantiles) - 1)
            high = min(low + 1, len(self.quantiles) - 1)
            value = self.quantiles[low] + (place - low) * (self.quantiles[high] - self.quantiles[low])
        elif self.log_sd <= 0:
            value = self.mean
        else:
            middle = math.log(self.mean) - self.log_sd**2 / 2
            value = math.exp(middle + self.log_sd * _NORMAL.inv_cdf(min(max(probability, 1e-12), 1 - 1e-12)))
        return max(1, round(value))


def load_rules(path: str, default: LengthRule) -> tuple[LengthRule, ...]:
    """Rules of a JSON file (a list of objects with LengthRule's fields, or `file` + `line` of a JSONL of lengths), or of a
    JSONL file of lengths itself (every line has "tokens": quantiles; all lines are pooled). Ends with the default rule.

    Raises ValueError naming file, rule and field.
    """
    data = Path(path).read_bytes()
    if path.endswith(".jsonl"):
        return (LengthRule(quantiles=_pool(path, data, None)),)
    try:
        items = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"{path}: not JSON ({error}); expected a list of rules") from error
    if not isinstance(items, list):
        raise ValueError(f"{path}: expected a list of rules, found {type(items).__name__}")
    return (*(_make_rule(path, index, item) for index, item in enumerate(items)), default)


_NUMBERS = {"mean", "log_sd", "empty_share", "loop_share", "unclosed_share", "reasoning_share", "tool_share"}


def _make_rule(path: str, index: int, item: Any) -> LengthRule:
    where = f"{path}: rule {index}"
    if not isinstance(item, dict):
        raise ValueError(f"{where}: expected an object, found {type(item).__name__}")
    unknown = set(item) - _NUMBERS - {"match", "regex", "file", "line", "tokens"}
    if unknown:
        raise ValueError(
            f"{where}: unknown field {sorted(unknown)[0]!r}; expected match, regex, file, line, tokens, "
            + ", ".join(sorted(_NUMBERS))
        )
    for name in _NUMBERS & set(item):
        if not isinstance(item[name], int | float):
            raise ValueError(f"{where}: {name} must be a number, found {item[name]!r}")
    try:
        regex = re.compile(str(item["regex"])) if "regex" in item else None
    except re.error as error:
        raise ValueError(f"{where}: regex {item['regex']!r}: {error}") from error
    quantiles: tuple[float, ...] = tuple(sorted(float(value) for value in item.get("tokens", ())))
    if "file" in item:
        source = str(Path(path).parent / item["file"])
        quantiles = _pool(source, Path(source).read_bytes(), item.get("line"))
    numbers = {name: float(item[name]) for name in _NUMBERS & set(item)}
    return LengthRule(match=str(item.get("match", "")), regex=regex, quantiles=quantiles, **numbers)


def _pool(path: str, data: bytes, line: int | None) -> tuple[float, ...]:
    values: list[float] = []
    for number, text in enumerate(data.split(b"\n")):
        if not text.strip() or (line is not None and number != line):
            continue
        try:
            values += [float(value) for value in orjson.loads(text)["tokens"]]
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f'{path}: line {number + 1}: expected an object with "tokens": [...] ({error})') from error
    if not values:
        raise ValueError(f"{path}: no lengths found" + ("" if line is None else f" in line {line + 1}"))
    return tuple(sorted(values))


@dataclass(frozen=True, slots=True)
class Draw:
    """Numbers in [0, 1) and a place, all from one hash of the request."""

    length: float
    kind: float
    other: float
    start: int


def draw(seed: int, request_seed: int | None, prompt: str, occurrence: int) -> Draw:
    key = f"{seed}|{request_seed}|{occurrence}|".encode() + prompt.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(key, digest_size=32).digest()
    numbers = [int.from_bytes(digest[place : place + 8], "big") for place in (0, 8, 16, 24)]
    return Draw(numbers[0] / _SCALE, numbers[1] / _SCALE, numbers[2] / _SCALE, numbers[3])


def plan_text(rules: tuple[LengthRule, ...], prompt: str, drawn: Draw, *, thinking: bool) -> TextPlan:
    """The text that answers a prompt, by the first rule that matches it."""
    rule = next((rule for rule in rules if rule.matches(prompt)), rules[-1])
    edge = rule.empty_share
    kind = TextKind.NORMAL
    if drawn.kind < edge:
        return TextPlan(TextKind.EMPTY, 1, thinking, drawn.start)
    if drawn.kind < (edge := edge + rule.loop_share):
        kind = TextKind.LOOP
    elif drawn.kind < edge + rule.unclosed_share:
        kind = TextKind.UNCLOSED
    wanted = 10**9 if kind is TextKind.LOOP else rule.length_at(drawn.length)
    return TextPlan(kind, wanted, thinking, drawn.start, reasoning_share=rule.reasoning_share)
