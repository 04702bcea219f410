"""Prompt files: found, hashed and counted (`files`), turned into messages (`forms`, `turns`), read lazily with exact
ids (`lines`, `reader`).

Used by what creates runs and by what works on them; it knows neither the ledger nor budgets.
"""

from backend.prompts.files import PromptFileError, scan, verify
from backend.prompts.reader import BadLine, PromptReader, preview
from backend.prompts.turns import next_turn, turn_count

__all__ = ["BadLine", "PromptFileError", "PromptReader", "next_turn", "preview", "scan", "turn_count", "verify"]
