"""Stands in for the `datasets` library, which SGLang's benchmark imports for data sets that we never load.

The benchmark makes its prompts itself (random token ids); the real library would add some 250 MB to the environment.
"""

from __future__ import annotations

from typing import NoReturn


def load_dataset(*args: object, **kwargs: object) -> NoReturn:
    """Refuses: there is nothing behind this module."""
    raise NotImplementedError("the CPU engine has no `datasets` library; choose --dataset-name random-ids")
