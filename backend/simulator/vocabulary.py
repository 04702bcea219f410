"""The words of the simulated model: word lists and sentence patterns, written so that texts read like reasoning and answers.

The order of WORDS fixes the token ids (tokens.py): append, never insert.
"""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NOUNS = _words(
    """
    number value sum term equation case step result answer problem question ratio angle side total price amount
    day hour train list array loop function index string key bound limit proof example condition formula factor
    remainder fraction percent distance speed time cost set graph node path edge root base power digit pattern
    constraint variable parameter expression solution approach method idea detail assumption statement
    definition interval sequence matrix vector triangle circle square radius area volume weight length width
    height box ball card coin student teacher apple basket garden
    """
)

VERBS = _words(
    """
    compute check verify compare add subtract multiply divide simplify rewrite expand factor substitute solve
    count list consider assume conclude derive estimate round test sort search return iterate store update
    handle reduce bound
    """
)

ADJECTIVES = _words(
    """
    simple small large equal different correct wrong possible direct careful exact rough first second last next
    remaining common positive negative even odd integer whole clear safe constant linear useful original final
    full empty
    """
)

GLUE = _words(
    """
    the a an of to in is are we so and or but then that this it if because with for from by on at as be can must
    should have has not no yes let me now wait hmm okay actually maybe also still again there here which when
    where what how I need think know see get gives means makes seems looks works holds follows each every both
    one two three all some more less than only just before after first therefore thus hence since however
    instead together into out up down was were will would could about over under between same other its their
    your you user asks wants write code line
    """
)

WORDS: tuple[str, ...] = tuple(dict.fromkeys([*GLUE, *NOUNS, *VERBS, *ADJECTIVES]))

REASONING_PATTERNS = (
    "Okay, so we need to {v} the {a} {n}.",
    "Let me {v} the {n} first, and then the {a} {n}.",
    "Wait, that is not the same {n} as before; we should {v} it again.",
    "If the {n} is {d}, then the {a} {n} must be {d}.",
    "So {d} and {d} together gives {d}, which seems {a}.",
    "Hmm, maybe there is a {a} {n} here that I should {v}.",
    "Now we can {v} each {n} of the {a} {n}, because the {n} holds.",
    "However, the {n} has {d} more than the {n}, so we {v} both.",
    "Actually, let me {v} this with a {a} {n}: {d} of them, then {d}.",
    "The {a} {n} follows from the {n}, since the {n} is {a}.",
    "What if the {n} was {a} instead? Then we would {v} only the {n}.",
    "That means the {n} is {d}, not {d}, and the {n} still works.",
)

ANSWER_PATTERNS = (
    "The {n} is {d}.",
    "First, {v} the {a} {n}; this gives {d}.",
    "Then {v} the {n} and the {n}, so that the {a} {n} is {d}.",
    "Because the {n} is {a}, we can {v} it with the {n}.",
    "Therefore the {a} {n} has {d} of each {n}.",
    "You should {v} the {n} before the {n}, and {v} the {a} {n} last.",
    "In this case the {n} follows from the {a} {n}.",
)
