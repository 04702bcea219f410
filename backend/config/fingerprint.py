"""PURE: one hash over everything that shapes a run's data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Final

from backend.config.sglang_flags import shaping_flags
from backend.config.shape import PromptFile, RunConfig

VERSION: Final = 1
READING: Final = {"id_field", "prompt_field", "system_prompt", "turns"}


def fingerprint(config: RunConfig, prompt_files: Mapping[str, Sequence[PromptFile]]) -> str:
    """SHA-256 (hex) over model, sampling, the flags that change answers, and each dataset's reading and content.

    Order, budgets, ports, paths and concurrency have no part in it: they decide how much is made and where, not what.
    `prompt_files` holds the files of each dataset, by its name.
    """
    shape = {
        "version": VERSION,
        "model": config.model.path,
        "flags": shaping_flags(config.engine.args),
        "datasets": {
            dataset.name: {
                **dataset.model_dump(mode="json", include=READING, exclude_none=True),
                # what is not set is left out, so that a setting added in a later version changes no fingerprint
                "sampling": config.sampling_for(dataset).model_dump(mode="json", exclude_defaults=True),
                "files": [file.sha256 for file in prompt_files[dataset.name]],
            }
            for dataset in config.datasets
        },
    }
    return hashlib.sha256(json.dumps(shape, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
