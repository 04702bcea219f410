"""PURE: whether the model that an API says has answered is the one that was asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

# What providers put behind a name without meaning another model: a date, a number of the release, the billing class.
_SUFFIX: Final = re.compile(r"[-:@_](?:\d{3,8}(?:-\d{2}){0,2}|\d{2}-\d{2}|latest|free|floor|nitro|exacto|extended|standard)")


def is_same_model(asked: str, answered: str | None, accepted: Iterable[str] = ()) -> bool:
    """Whether `answered` names the asked model, or one that run.toml accepts. An API that names none is believed.

    Owner and letter case do not count ("Qwen/Qwen3-8B" is "qwen3-8b"), nor does a date behind the name. Versions and
    quantisations do ("v3" and "v3.1", "-fp8"): they are other weights.
    """
    if not answered:
        return True
    return any(_agree(name, answered) for name in (asked, *accepted))


def _agree(asked: str, answered: str) -> bool:
    one, other = (name.lower().rstrip("/").rpartition("/")[2] for name in (asked, answered))
    shorter, longer = sorted((one, other), key=len)
    return longer.startswith(shorter) and re.fullmatch(rf"(?:{_SUFFIX.pattern})*", longer[len(shorter) :]) is not None
