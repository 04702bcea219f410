"""A `triton` that can be imported and does nothing: SGLang defines its GPU kernels at import, a CPU never calls them.

Decorators give back the function they decorate, names in CapitalLetters are empty classes (so that they can be
subclassed and asked about with isinstance), everything else is an object that accepts whatever is done to it and is
false and empty. The few plain helpers that run on the host compute what they promise.
"""

from __future__ import annotations

import importlib.machinery
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any


class Inert:
    """Stands for any function, decorator, number type or table of triton."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Inert:
        if name.startswith("__"):
            raise AttributeError(name)
        return Inert(f"{self._name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and callable(args[0]):
            return args[0]  # used as a bare decorator
        return _decorate_nothing  # used as a decorator with arguments

    def __getitem__(self, key: object) -> Inert:
        return self

    def __contains__(self, key: object) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"<{self._name}: absent on this machine>"


def _decorate_nothing(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


class Config:
    """What kernels list for autotuning: only kept."""

    def __init__(self, kwargs: dict[str, Any] | None = None, **options: Any) -> None:
        self.kwargs = dict(kwargs or {})
        self.__dict__.update(options)


class constexpr:  # noqa: N801 - triton's own spelling, used as a type and as a value
    """A constant known when a kernel is compiled: only kept."""

    def __init__(self, value: Any = None) -> None:
        self.value = value


class dtype:  # noqa: N801 - triton's own spelling
    """The class of triton's number types; none of ours is one."""


class OutOfResources(Exception):  # noqa: N818 - triton's own spelling
    """Caught by autotuners, never raised here."""


class PTXASError(Exception):
    """Likewise."""


def cdiv(numerator: int, denominator: int) -> int:
    return (numerator + denominator - 1) // denominator


def next_power_of_2(number: int) -> int:
    return 1 if number <= 1 else 2 ** (number - 1).bit_length()


_REAL: dict[str, dict[str, Any]] = {
    "triton": {"__version__": "3.0.0", "Config": Config, "cdiv": cdiv, "next_power_of_2": next_power_of_2},
    "triton.language": {"constexpr": constexpr, "dtype": dtype},
    "triton.language.core": {"constexpr": constexpr, "dtype": dtype},
    "triton.runtime.autotuner": {"OutOfResources": OutOfResources, "PTXASError": PTXASError, "Config": Config},
    "triton.runtime.errors": {"OutOfResources": OutOfResources, "PTXASError": PTXASError},
}


class StandInModule(ModuleType):
    """Any module below `triton`; unknown names come into being when they are asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = type(name, (), {"__module__": self.__name__}) if name[0].isupper() else Inert(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class StandInFinder:
    """Meta-path finder and loader for `triton` and everything below it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "triton" and not name.startswith("triton."):
            return None
        return importlib.machinery.ModuleSpec(name, self, origin="stand-in", is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return StandInModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(_REAL.get(module.__name__, {}))
