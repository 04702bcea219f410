"""Makes the two prompt files of the tests against the real engine: `python tests/data/make_prompts.py`.

100 grade-school word problems (field `question`) and 100 function headers to complete (fields `task_id` and `prompt`).
The same on every machine: nothing is random. The files are committed, so that tests need no generator.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
NAMES = ("Amara", "Björn", "Chloé", "Dmitri", "Esther", "Farid", "Giulia", "Hana", "Ignacio", "Jūlija")

# {a} > {b} > {c}, all of them small; {n} and {m} are names.
STORIES = (
    "{n} picks {a} apples and gives {b} of them to {m}. Then {n} picks {c} more. How many apples does {n} have now?",
    "A ticket to the zoo costs ${b} for an adult and ${c} for a child. What do {a} adults and {b} children pay together?",
    "{n} reads {b} pages on weekdays and {a} pages on each day of the weekend. How many pages is that in {c} weeks?",
    "{m} has {a} stamps, which is {b} more than {n} has. {n} buys {c} packs of 5 stamps. How many has {n} then?",
    "A bus leaves with {a} people. At the first stop {b} get off and {c} get on; at the second half of all people get off. "
    "How many people got off altogether?",
    "{n} earns ${a} an hour and works {c} hours a day. After 5 days {n} spends ${b} on shoes. How much money is left?",
    "There are {a} rows with {b} chairs each in the hall. {c} chairs are broken. How many people can sit down?",
    "A rope of {a} metres is cut into pieces of {c} metres. How many whole pieces are there, and how long is the rest?",
    "{n} bakes {a} rolls and {m} bakes {b}. They sell all but {c} of them for $2 each. How much money do they take?",
    "The garden is {a} metres long and {b} metres wide. A fence post stands every metre. How many posts are needed?",
)

NUMBERS = (
    (24, 9, 4),
    (35, 12, 6),
    (48, 15, 8),
    (57, 21, 3),
    (66, 18, 5),
    (72, 30, 7),
    (81, 26, 9),
    (90, 33, 2),
    (96, 40, 11),
    (99, 14, 10),
)

Predicate = Callable[[int], bool]
PREDICATES: tuple[tuple[str, str, Predicate], ...] = (
    ("even", "even", lambda x: x % 2 == 0),
    ("odd", "odd", lambda x: x % 2 == 1),
    ("positive", "greater than zero", lambda x: x > 0),
    ("negative", "less than zero", lambda x: x < 0),
    ("triple", "divisible by three", lambda x: x % 3 == 0),
    ("small", "between -5 and 5, both included", lambda x: -5 <= x <= 5),
    ("large", "greater than ten", lambda x: x > 10),
    ("square", "the square of a whole number", lambda x: x >= 0 and math.isqrt(x) ** 2 == x),
    ("two_digit", "written with exactly two digits, the sign aside", lambda x: 10 <= abs(x) <= 99),
    ("round", "a multiple of five", lambda x: x % 5 == 0),
)

Reduction = Callable[[list[int]], Any]
REDUCTIONS: tuple[tuple[str, str, str, Reduction], ...] = (
    ("sum", "int", "Return the sum of the numbers that are {what}.", sum),
    ("count", "int", "Count the numbers that are {what}.", len),
    (
        "largest",
        "Optional[int]",
        "Return the largest number that is {what}, or None if there is none.",
        lambda x: max(x, default=None),
    ),
    (
        "smallest",
        "Optional[int]",
        "Return the smallest number that is {what}, or None if there is none.",
        lambda x: min(x, default=None),
    ),
    ("product", "int", "Return the product of the numbers that are {what}; without any it is 1.", math.prod),
    ("sorted", "List[int]", "Return the numbers that are {what} in ascending order.", sorted),
    ("doubled", "List[int]", "Return twice each number that is {what}, in the given order.", lambda x: [2 * y for y in x]),
    (
        "first",
        "Optional[int]",
        "Return the first number that is {what}, or None if there is none.",
        lambda x: x[0] if x else None,
    ),
    ("distinct", "int", "Say how many different numbers there are that are {what}.", lambda x: len(set(x))),
    ("joined", "str", "Return the numbers that are {what} as text, joined by commas.", lambda x: ",".join(map(str, x))),
)

EXAMPLES = ([3, -4, 25, 10, 3, 0, -15], [7, 12, -9, 64])


def arithmetic() -> Iterable[dict[str, str]]:
    """Ten stories with ten sets of numbers each."""
    for round_number, (a, b, c) in enumerate(NUMBERS):
        for story_number, story in enumerate(STORIES):
            who = NAMES[(round_number + story_number) % len(NAMES)]
            other = NAMES[(round_number + story_number + 3) % len(NAMES)]
            yield {"question": story.format(a=a, b=b, c=c, n=who, m=other)}


def functions() -> Iterable[dict[str, str]]:
    """Each reduction over each kind of number, with examples that are true."""
    for number, (reduction, predicate) in enumerate((r, p) for r in REDUCTIONS for p in PREDICATES):
        verb, returns, sentence, reduce = reduction
        kind, what, holds = predicate
        name = f"{verb}_{kind}"
        lines = [
            "from typing import List, Optional",
            "",
            "",
            f"def {name}(numbers: List[int]) -> {returns}:",
            f'    """{sentence.format(what=what)}',
        ]
        for example in EXAMPLES:
            lines += [f"    >>> {name}({example})", f"    {reduce([x for x in example if holds(x)])!r}"]
        yield {"task_id": f"Functions/{number}", "prompt": "\n".join([*lines, '    """', ""])}


def main() -> None:
    for name, records in (("arithmetic", arithmetic()), ("functions", functions())):
        lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
        (FOLDER / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
