"""What is seen in a finished text (facts), and what the text is worth (outcome): pure, and versioned.

Facts are stored with each row when it is made. The outcome is a decision list over stored columns, applied on reading, so a
better rule needs no rewriting. How alike answers are is a matter of many texts and no part of an outcome: `similarity.py`.
"""

from backend.outcomes.facts import facts
from backend.outcomes.loops import find_loop
from backend.outcomes.reasoning import REASONING_MARKS, SplitText, has_leftover_marks, says_nothing, split_reasoning
from backend.outcomes.rule import (
    BAD,
    EMPTY_BELOW_TOKENS,
    LOOP_MIN_SHARE,
    RULE_COLUMNS,
    RULE_VERSION,
    outcome,
    outcome_of,
    outcome_of_record,
)
from backend.outcomes.similarity import NearDuplicates, simhash

__all__ = [
    "BAD",
    "EMPTY_BELOW_TOKENS",
    "LOOP_MIN_SHARE",
    "REASONING_MARKS",
    "RULE_COLUMNS",
    "RULE_VERSION",
    "NearDuplicates",
    "SplitText",
    "facts",
    "find_loop",
    "has_leftover_marks",
    "outcome",
    "outcome_of",
    "outcome_of_record",
    "says_nothing",
    "simhash",
    "split_reasoning",
]
