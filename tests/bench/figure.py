"""A measured figure, and whether it reaches its target."""

from __future__ import annotations

from dataclasses import dataclass


class SkippedError(Exception):
    """This bench cannot run here; the message says why and what would make it run."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report. `reached` is None for a figure that only explains another one."""

    what: str
    value: str
    target: str = ""
    reached: bool | None = None

    def line(self) -> str:
        """`PASS  what  value  (target)`."""
        verdict = {True: "PASS", False: "MISS", None: "    "}[self.reached]
        return f"  {verdict}  {self.what:<62} {self.value:>16}  {self.target}".rstrip()


def at_least(what: str, value: float, target: float, form: str = "{:,.0f}") -> Figure:
    """A figure that must not be lower than its target; `form` shows both."""
    return Figure(what, form.format(value), f"at least {form.format(target)}", value >= target)


def at_most(what: str, value: float, target: float, form: str = "{:,.0f}") -> Figure:
    """A figure that must not be higher than its target; `form` shows both."""
    return Figure(what, form.format(value), f"at most {form.format(target)}", value <= target)


def told(what: str, value: float, form: str = "{:,.0f}") -> Figure:
    """A figure without a target."""
    return Figure(what, form.format(value))
