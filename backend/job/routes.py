"""PURE: where the requests of a dataset go: to the engine, to an API, or to both at once; and how that is written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

LOCAL: Final = "local"
BOTH: Final = "both:"  # "both:NAME"


class UnknownRouteError(ValueError):
    """Such a route does not exist in this run; the message says which do."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a dataset's next requests go. What is in flight elsewhere finishes there."""

    local: bool = True
    api: str | None = None  # the API's name in run.toml

    def __str__(self) -> str:
        if self.api is None:
            return LOCAL
        return f"{BOTH}{self.api}" if self.local else self.api

    @property
    def sources(self) -> frozenset[str]:
        """Who may take its prompts, as `source` of the rows."""
        return frozenset([*([LOCAL] if self.local else []), *([self.api] if self.api else [])])

    def words(self) -> str:
        """For a sentence: "to the engine", "to openrouter", "to the engine and to openrouter"."""
        return " and ".join([*(["to the engine"] if self.local else []), *([f"to {self.api}"] if self.api else [])])


def parse_route(text: object, apis: Iterable[str]) -> Route:
    """`local`, the name of an API, or `both:NAME`. Raises UnknownRouteError."""
    names = list(apis)
    if text == LOCAL:
        return Route()
    name = text.removeprefix(BOTH) if isinstance(text, str) else None
    if name not in names:
        known = (
            f"its APIs are {', '.join(names)}" if names else "it has none: add [api.NAME] to its run.toml and start it again"
        )
        raise UnknownRouteError(f"This run has no API {text!r}; {known}. A route is local, NAME or {BOTH}NAME.")
    return Route(local=isinstance(text, str) and text.startswith(BOTH), api=name)
