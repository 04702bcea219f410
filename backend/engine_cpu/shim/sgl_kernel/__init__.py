"""Stands in for SGLang's compiled kernels, whose CPU build is not on the package index.

No operator is registered, so SGLang finds none and takes its pure-torch path in every layer. The one kernel without
such a path is written out; any other name imports and says so when it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


def assign_req_to_token_pool_cpu(  # noqa: PLR0917 - called by position
    rows: Any, req_to_token: Any, starts: Any, ends: Any, cache_slots: Any, row_width: int
) -> None:
    """Writes each request's new cache slots into its row of the request-to-token table, columns start to end."""
    taken = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        count = end - start
        req_to_token[row, start:end] = cache_slots[taken : taken + count].to(req_to_token.dtype)
        taken += count


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(f"module 'sgl_kernel' has no attribute {name!r}")

    def absent(*args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name} is a compiled kernel; this stand-in for a CPU has none")

    return absent
