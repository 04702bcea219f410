"""The fault kit: every way the simulator can fail on demand, by name, from the command line or while it runs.

Only the registry and its state; each fault takes effect where the thing it breaks lives.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One switch: its argument's meaning and value if none is given."""

    meaning: str
    default: float | None = 1.0
    takes_hold: bool = False


_SHARE = "share of the requests (0-1)"

KINDS: dict[str, FaultKind] = {
    "hang": FaultKind(
        "nothing progresses, counters and heartbeat freeze, /health stays 200; argument: seconds, none = for good", None
    ),
    "hang-at-start": FaultKind("the load never ends", None),
    "health-503-under-load": FaultKind("/health and /ready answer 503 for so many seconds from the first load on", 25.0),
    "die-at-request": FaultKind(
        "SIGKILL to itself at generation request number N; N:hold keeps the port open in a child", 1.0, True
    ),
    "orphan-child": FaultKind("a child of the same session, reparented to PID 1, that survives the parent", None),
    "flood-stdout": FaultKind("megabytes written to stdout", 4.0),
    "ignore-disconnects": FaultKind("a client that goes away does not end its generation", None),
    "ignore-abort": FaultKind("/abort_request answers 200 and does nothing", None),
    "decay": FaultKind("after so many seconds decoding is 14 times slower; T:FACTOR for another factor", 0.0, True),
    "reset-counters": FaultKind("cumulative counters go to 0, once, after so many seconds", 0.0),
    "gauge-frozen": FaultKind("gauges keep their values, counters move on", None),
    "usage-null": FaultKind(f'"usage": null; {_SHARE}'),
    "content-null-length": FaultKind(f'"content": null with finish_reason length; {_SHARE}'),
    "empty-stop": FaultKind(f'content "" with finish_reason stop; {_SHARE}'),
    "unclosed-think": FaultKind(f"<think> without its end, finish_reason stop; {_SHARE}"),
    "loop-text": FaultKind(f"the same words until the cap; {_SHARE}"),
    "abort-200": FaultKind(f"finish_reason abort with HTTP 200, half of the text; {_SHARE}"),
    "http-500": FaultKind(f"HTTP 500; {_SHARE}"),
    "http-503": FaultKind(f"HTTP 503; {_SHARE}"),
    "http-429": FaultKind(f"HTTP 429 with Retry-After: 1; {_SHARE}"),
    "http-401": FaultKind(f"HTTP 401, as with a wrong key; {_SHARE}"),
    "http-402": FaultKind(f"HTTP 402, as without credit; {_SHARE}"),
    "flagged-403": FaultKind(f"HTTP 403, flagged by moderation, always for the same prompts; {_SHARE}"),
    "retry-after-date": FaultKind("429 tells a date in Retry-After", None),
    "retry-in-words": FaultKind('429 has no Retry-After and says "try again in 120ms"', None),
    "cut-stream": FaultKind(f"a stream's connection is closed after half of the tokens; {_SHARE}"),
    "stall-stream": FaultKind(f"a stream says nothing more after half of the tokens; {_SHARE}"),
    "stream-error": FaultKind(f"a stream ends with an error after half of the tokens; {_SHARE}"),
    "other-model": FaultKind(f'"model" names another one; {_SHARE}'),
    "cost-missing": FaultKind("usage without cost (profile api)", None),
    "disconnect": FaultKind(f"the connection is closed instead of an answer; {_SHARE}"),
    "reject-400": FaultKind(f"HTTP 400, always for the same prompts; {_SHARE}"),
    "u2028": FaultKind(f"U+2028, U+0085 and NUL in the text; {_SHARE}"),
    "lone-surrogate": FaultKind(f"the JSON escape \\ud835 alone in the text; {_SHARE}"),
    "big-id": FaultKind(f"an integer beyond 2^63 and an object of 200 keys in meta_info; {_SHARE}"),
    "answer-6mb": FaultKind("every answer is padded to so many megabytes", 6.0),
    "wrong-usage": FaultKind(f"usage.completion_tokens 7 too high; {_SHARE}"),
    "slow-first-byte": FaultKind("seconds before the first byte of an answer", 5.0),
    "spec-cap-48": FaultKind("at most 48 requests run at once, with SGLang's warning", None),
}


class UnknownFaultError(ValueError):
    """A fault that does not exist or whose argument is not what it takes; the message names what does."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An active fault: `value` as its kind says; `extra` is what stood behind a colon."""

    name: str
    value: float | None
    extra: str = ""


def parse_fault(name: str, argument: str | float | bool | None) -> Fault:
    """Check a name and its argument. Raises UnknownFaultError."""
    kind = KINDS.get(name)
    if kind is None:
        raise UnknownFaultError(f"unknown fault {name!r}; there are: {', '.join(sorted(KINDS))}")
    if argument is None or argument is True or argument == "":
        return Fault(name, kind.default)
    number, _, extra = str(argument).partition(":")
    if extra and not kind.takes_hold:
        raise UnknownFaultError(f"fault {name}: {argument!r} has a part behind a colon, it takes: {kind.meaning}")
    try:
        return Fault(name, float(number), extra)
    except ValueError as error:
        raise UnknownFaultError(f"fault {name}: {argument!r} is not a number; it takes: {kind.meaning}") from error


class Faults:
    """What is switched on, and the dice for shares."""

    def __init__(self, seed: int) -> None:
        self.active: dict[str, Fault] = {}
        self._seed = seed
        self._dice = random.Random(seed)

    def switch_on(self, fault: Fault) -> None:
        self.active[fault.name] = fault

    def switch_off(self, name: str) -> None:
        self.active.pop(name, None)

    def __contains__(self, name: str) -> bool:
        return name in self.active

    def value(self, name: str) -> float | None:
        fault = self.active.get(name)
        return None if fault is None else fault.value

    def strikes(self, name: str) -> bool:
        """Thrown anew for each request: a retry may succeed."""
        fault = self.active.get(name)
        if fault is None:
            return False
        return fault.value is None or fault.value >= 1 or self._dice.random() < fault.value

    def strikes_prompt(self, name: str, prompt: str) -> bool:
        """Decided by the prompt: the same one always meets the same fate."""
        fault = self.active.get(name)
        if fault is None:
            return False
        if fault.value is None or fault.value >= 1:
            return True
        key = f"{self._seed}|{name}|".encode() + prompt.encode("utf-8", "surrogatepass")
        number = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")
        return number / 2**64 < fault.value
