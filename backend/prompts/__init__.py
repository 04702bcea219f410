"""Prompt files: found, hashed and counted (`files`), turned into messages (`forms`), read lazily with exact ids (`reader`).

Used by what creates runs and by what works on them; it knows neither the ledger nor budgets.
"""

from backend.prompts.files import PromptFileError, scan, verify
from backend.prompts.forms import next_turn, turn_count
from backend.prompts.reader import BadLine, PromptReader, preview

__all__ = ["BadLine", "PromptFileError", "PromptReader", "next_turn", "preview", "scan", "turn_count", "verify"]
