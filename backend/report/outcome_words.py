"""What each outcome means, in a few words and exactly: the thresholds are those of the rule itself."""

from __future__ import annotations

from typing import Final

from backend.outcomes import EMPTY_BELOW_TOKENS, LOOP_MIN_SHARE, RULE_VERSION
from backend.outcomes.loops import (
    DOMINANT_MIN_TOKENS,
    DOMINANT_SHARE,
    LOOP_MAX_PERIOD_TOKENS,
    LOOP_MIN_COPIES,
    LOOP_MIN_TOKENS,
)
from backend.outcomes.similarity import NEAR_BITS, NEAR_MIN_TOKENS, NEAR_OTHERS, NEAR_WINDOW
from backend.records import Outcome

REPEATS: Final = "repeats others"  # no outcome: it takes other texts to tell

OUTCOME_WORDS: Final[dict[str, str]] = {
    Outcome.OK: "a whole answer",
    Outcome.TRUNCATED: "ended by the cap on new tokens",
    Outcome.EMPTY: "nothing was answered",
    Outcome.THINKING_ONLY: "reasoning without an answer",
    Outcome.DEGENERATE: "runs in a loop",
    Outcome.REJECTED: "refused by the server",
}

_PERCENT: Final = f"{LOOP_MIN_SHARE:.0%}".replace("%", " %")
_DOMINANT: Final = f"{DOMINANT_SHARE:.0%}".replace("%", " %")

# In the order in which they are decided: the first that fits counts.
DEFINITIONS: Final[dict[str, str]] = {
    Outcome.REJECTED: "The server refused the prompt for good; the row holds its words.",
    Outcome.DEGENERATE: (
        f"The text ends in a loop: at least {LOOP_MIN_COPIES} equal copies of at most {LOOP_MAX_PERIOD_TOKENS} tokens, in all "
        f"at least {LOOP_MIN_TOKENS} tokens. Where the text ended by itself the loop has to cover {_PERCENT} of it, because "
        f"refrains and tables end so. Or one token makes up {_DOMINANT} of a text of at least {DOMINANT_MIN_TOKENS} tokens."
    ),
    Outcome.TRUNCATED: "The cap on new tokens ended it.",
    Outcome.THINKING_ONLY: (
        "Its reasoning was not closed, or no answer follows it, or a mark of reasoning is left in the answer: at its beginning "
        "or end, or alone on a line. An answer that speaks of such marks is none."
    ),
    Outcome.EMPTY: (
        f"No reasoning, and an answer of fewer than {EMPTY_BELOW_TOKENS} token that says something: white space, punctuation "
        f'and left-over marks say nothing, "42" does.'
    ),
    Outcome.OK: "Everything else. A tool call is a whole answer.",
    REPEATS: (
        f"Beside the outcomes: its hash (SimHash, 64 bits) is within {NEAR_BITS} bits of {NEAR_OTHERS} or more of the last "
        f"{NEAR_WINDOW:,} answers before it. Answers below {NEAR_MIN_TOKENS} tokens may be equal and right; they do not count."
    ),
}

RULE_WORDS: Final = f"rule {RULE_VERSION}, applied on reading: a better one needs no sample to be made again"
