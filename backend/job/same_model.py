"""PURE: whether the model that an API says has answered is the one that was asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

# What providers put behind a name without meaning another model: a date or version, an edition, the billing class.
_SUFFIX: Final = re.compile(r"[-:@._](?:\d[\d.-]*|latest|free|floor|nitro|exacto|online|extended|standard)")


def is_same_model(asked: str, answered: str | None, accepted: Iterable[str] = ()) -> bool:
    """Whether `answered` names the asked model, or one that run.toml accepts. An API that names none is believed.

    Owner and letter case do not count ("Qwen/Qwen3-8B" is "qwen3-8b"), nor do a date or an edition behind the name.
    Quantisations do ("-fp8", "-awq"): they are other weights.
    """
    if not answered:
        return True
    return any(_agree(name, answered) for name in (asked, *accepted))


def _agree(asked: str, answered: str) -> bool:
    one, other = (name.lower().rstrip("/").rpartition("/")[2] for name in (asked, answered))
    shorter, longer = sorted((one, other), key=len)
    return longer.startswith(shorter) and re.fullmatch(rf"(?:{_SUFFIX.pattern})*", longer[len(shorter) :]) is not None
