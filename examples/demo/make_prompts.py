"""Writes the prompts of the demo, B1.jsonl to B4.jsonl: `python examples/demo/make_prompts.py`.

The same on every machine: nothing is random. The files are committed, so that the demo needs no generator. `lengths.json`
tells the simulated server from their words which answers are short and which are long.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

FOLDER = Path(__file__).parent

# B1: what happens to a number of things. {a} > {b} > {c}, all of them small.
PEOPLE = ("Amina", "Bruno", "Chiara", "Deniz", "Edda", "Farouk", "Grete", "Hugo", "Ioana", "Jonas")
STORIES = (
    "{n} carries {a} bricks to the wall and lays {b} of them before lunch. After lunch {c} more arrive. How many "
    "are left to lay?",
    "A ferry takes {b} cars a trip and goes {c} times a day. {n} counts {a} cars on the last day. How many crossed "
    "in a week of "
    "full trips before it?",
    "{n} bakes {a} rolls, sells {b} at 2 coins each and the rest at half the price. How many coins does {n} have "
    "in the evening?",
    "A tank holds {a} litres and leaks {c} litres an hour. {n} pours in {b} litres after two hours. What is in it after three?",
    "{n} walks {c} km an hour for {b} minutes, then rests, then walks the same way back in {a} minutes. How fast "
    "was the way back?",
    "{n} has {a} seeds and plants them in rows of {c}. The last row stays short. How many seeds are in it, and how "
    "many rows are full?",
    "Of {a} letters that {n} sorts, {b} go abroad and every {c}th of the rest is a parcel slip. How many ordinary "
    "letters are left?",
    "A choir of {a} stands in {c} equal rows as well as it can; {n} is one of {b} who come late. How long is each "
    "row with everybody?",
    "{n} saves {b} coins a month and spends {c} on the bus. How many months until a bicycle of {a}0 coins can be bought?",
    "A shelf holds {a} books. {n} takes every third one and puts back {c}. Then {b} new ones come. How many stand there now?",
    "{n} mixes {c} parts of blue with {b} parts of yellow. How much blue is in {a} litres of the green that comes out?",
    "Two clocks show the same time. One loses {c} minutes a day, the other gains {b} seconds an hour. After how "
    "many days are they "
    "{a} minutes apart, {n} asks?",
)

# B2: a function and what is asked of it.
FUNCTIONS = (
    ("join_ranges(ranges)", "joins overlapping integer ranges"),
    ("rotate(items, by)", "returns the list rotated to the right"),
    ("parse_duration(text)", 'turns words such as "2h 5m" into seconds'),
    ("top_words(text, count)", "counts words regardless of case and returns the most frequent"),
    ("flatten(tree)", "yields the leaves of nested lists from left to right"),
    ("is_balanced(text)", "tells whether round, square and curly brackets match"),
    ("to_roman(number)", "writes a number from 1 to 3999 in Roman numerals"),
    ("spiral(matrix)", "reads a rectangular matrix in a spiral from the upper left corner"),
    ("chunks(items, size)", "cuts an iterable into lists of a size without reading it twice"),
    ("longest_run(values)", "finds the longest stretch of equal neighbours"),
    ("change(amount, coins)", "finds the fewest coins that make an amount, or None"),
    ("edit_distance(left, right)", "counts insertions, deletions and replacements between two words"),
    ("moving_average(values, width)", "yields averages over a sliding window in constant time for each value"),
    ("group_anagrams(words)", "puts words of the same letters together, in order of appearance"),
    ("merge_sorted(streams)", "merges any number of sorted iterables lazily"),
    ("days_between(start, end)", "counts working days between two dates, both included"),
    ("safe_get(document, path)", 'follows a path such as "a.b[2].c" through dicts and lists'),
    ("next_prime(number)", "returns the smallest prime above a number"),
    ("transpose(rows)", "turns rows of unequal length into columns, filling gaps with None"),
    ("compress(text)", 'writes "aaab" as "a3b1" and refuses digits'),
    ("topological(edges)", "orders the nodes of a directed graph, or names a cycle"),
    ("wrap(text, width)", "breaks lines between words and keeps blank lines"),
)
CONDITIONS = (
    "Handle empty input.",
    "Add type hints and a docstring.",
    "Do not import anything.",
    "Show three examples with their results.",
    "Say how its time grows with its input.",
    "Raise ValueError with a helpful message where the input makes no sense.",
    "Write it without recursion.",
    "Add tests for the two cases that are easiest to get wrong.",
)

# B3: notes to be made short.
SUBJECTS = (
    ("the harbour council", "a second crane", "The old one is down one day in nine"),
    ("the school's parents", "a garden behind the gym", "The ground there is stony and has no water"),
    ("a bakery of four people", "an oven that runs at night", "Power is cheap between one and five"),
    ("the hill farmers", "a shared milk lorry", "Three of eleven farms lie beyond the bridge"),
    ("the library", "opening on Sundays", "Two people of the staff would have to change their weeks"),
    ("a climbing club", "a hut for thirty guests", "The path to it is closed by snow until May"),
    ("the museum", "letting the public see the stores", "The lift carries six people and no wheelchairs yet"),
    ("a small theatre", "selling fewer, dearer seats", "The balcony has been empty on weekdays for two years"),
    ("the fire brigade", "a boat", "The river rose four times in the last ten winters"),
    ("a print shop", "giving up colour", "Nine of ten orders are black and white, and the tenth pays the rent"),
)
COURSES = (
    "They met twice. The first time nobody had figures; the second time everybody had different ones. In the end they asked a "
    "neighbour who had done the same and learned that the first year had cost twice the estimate, the second half of it.",
    "The treasurer was against it, then counted again and was for it. Two members left over the tone of the "
    "letters. It was agreed "
    "to try it for eighteen months, with a fixed sum, and to publish what it costs each quarter.",
    "A survey came back with 214 answers of 600. Those who answered were older than those who did not. The board "
    "held the result "
    "to be weak, yet wrote to the bank, because the offer ended in March.",
    "It had been proposed three times since the nineties. What is new is a gift that covers a third, under the "
    "condition that the "
    "work begins this year and that the giver is not named.",
    "An engineer looked at it for a day and left a list of eleven points. Four are cheap, six can wait, and one, the drainage, "
    "decides whether the rest makes sense at all.",
    "After the vote, which was close, the losing side offered to do the bookkeeping. That was accepted with some "
    "surprise and has "
    "worked so far; the next report is due in the autumn.",
)
SHAPES = (
    "Summarise in two sentences for somebody who was not there:",
    "Summarise as three bullet points, the open question last:",
    "Summarise for a newspaper's front page in at most forty words:",
)

# B4: somebody asks something in a conversation.
ROLES = (
    "You are a patient tutor.",
    "You are a colleague who thinks aloud and says where you are unsure.",
    "You answer with care and give reasons before conclusions.",
)
QUESTIONS = (
    "I have four weekends until an exam in statistics and understand nothing beyond averages. Plan them with me.",
    "My sourdough is flat since I moved to the mountains. What could it be, and how do I find out which it is?",
    "Explain why the sky is dark at night if there are stars in every direction.",
    "Our team of six argues about estimates each fortnight. Invent a way that takes ten minutes.",
    "Which is heavier, a cubic metre of dry air or of moist air, and why do people believe the opposite?",
    "I want to read one hard novel this year, with a plan that survives a busy job. Ask me three questions, then propose one.",
    "Work out how many piano tuners a city of two million needs, and tell me which guess matters most.",
    "A friend lends money to friends and loses both. Write what I could say to her without lecturing.",
    "How would you divide a house, a boat and a dog fairly among three heirs who value them differently?",
    "Design a board game for two players with nothing but a pencil and graph paper, and look for its first flaw.",
    "Why do bridges have gaps, and what would happen to a long one without any?",
    "Teach me to estimate square roots in my head, with exercises that get harder.",
    "My daughter asks whether numbers were invented or found. Prepare me for her next three questions.",
    "Compare three ways to keep a village shop alive, with what each one costs whom.",
    "Tell the story of a lighthouse keeper's last week so that a careful reader can find out what is wrong with the light.",
    "How does a vaccine know where to go? Correct the question first.",
    "Plan a day in a town that you choose for somebody who cannot see but loves sounds.",
    "Prove that there are infinitely many primes in two different ways and say which one you find more beautiful.",
    "A train leaves every 12 minutes and a bus every 20. I arrive at random. How long do I wait for whichever comes first?",
    "I keep starting diaries. Find out with me what I want from one.",
    "Argue for and against giving everyone a vote on the first day of school, then decide.",
    "Which habits of a kitchen would make a good chemistry laboratory, and which would burn it down?",
    "Write a letter from a river to the city that straightened it.",
    "Explain compound interest to somebody who distrusts banks, without asking for trust.",
    "What would change if all clocks showed the sun's time at their own place?",
    "Sketch a test that tells whether a translation keeps the humour of its original.",
    "My code is fast on my laptop and slow on the server with more cores. List causes in the order in which you "
    "would check them.",
    "How would you explain the rules of football to a visitor who knows only chess?",
    "Find the weakest point in the argument that what is natural is good for us.",
    "Invent five units of measurement that a beekeeper would find useful and define them exactly.",
)


def word_problems() -> Iterator[dict[str, object]]:
    for index in range(200):
        story, round_ = STORIES[index % len(STORIES)], index // len(STORIES)
        c = 3 + (index + round_) % 7
        b = c + 4 + (index * 5) % 17
        text = story.format(n=PEOPLE[(index + round_) % len(PEOPLE)], a=b + 9 + (index * 7) % 40, b=b, c=c)
        yield {"id": f"problem-{index:03}", "question": f"{text} Show your steps and end with the number."}


def functions() -> Iterator[dict[str, object]]:
    for index, (condition, (call, purpose)) in enumerate(product(CONDITIONS, FUNCTIONS)):
        yield {"id": f"function-{index:03}", "prompt": f"Write a Python function `{call}` that {purpose}. {condition}"}


def notes() -> Iterator[dict[str, object]]:
    for index, (shape, course, (who, what, but)) in enumerate(product(SHAPES, COURSES, SUBJECTS)):
        text = f"{shape}\n\nFor a year {who} talked about {what}. {but}. {course}"
        yield {"id": f"note-{index:03}", "prompt": text}


def chats() -> Iterator[dict[str, object]]:
    for index, (role, question) in enumerate(product(ROLES, QUESTIONS)):
        yield {
            "id": f"chat-{index:03}",
            "messages": [{"role": "system", "content": role}, {"role": "user", "content": question}],
        }


def main() -> None:
    for name, prompts in (("B1", word_problems()), ("B2", functions()), ("B3", notes()), ("B4", chats())):
        _write(FOLDER / f"{name}.jsonl", prompts)


def _write(path: Path, prompts: Iterable[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(prompt, ensure_ascii=False) + "\n" for prompt in prompts), encoding="utf-8")


if __name__ == "__main__":
    main()
