"""PURE: how a conversation goes on from a generated answer, when every assistant turn is made anew."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import Final

from backend.records import Json, Prompt

RESULTS: Final = frozenset({"tool", "function"})


def next_turn(prompt: Prompt, answer_message: Json) -> Prompt | None:
    """The prompt of the next assistant turn of a conversation, with the generated answer in it; None after the last one.

    Results of tools are given to the calls that were generated, in order. An answer without calls skips the turns that
    only told the original's results; calls that the source has no result for end the conversation.
    """
    messages = [*prompt.messages, answer_message]
    calls = [call.get("id") for call in answer_message.get("tool_calls") or []]
    turn, rest = prompt.turn, list(prompt.later_turns)
    while rest:
        rest = after_assistant(rest)
        given = list(takewhile(lambda message: message["role"] != "assistant", rest))
        rest = rest[len(given) :]
        if not given:
            return None
        turn += 1
        results = [message for message in given if message["role"] in RESULTS]
        if len(results) < len(calls):
            return None
        answered = [{**result, "tool_call_id": call} for result, call in zip(results, calls, strict=False)]
        others = [message for message in given if message["role"] not in RESULTS]
        if not answered and not others:
            continue  # only results of calls that were not made
        stem = prompt.sample_id.rpartition("/t")[0]
        return replace(
            prompt,
            messages=(*messages, *answered, *others),
            sample_id=f"{stem}/t{turn}",
            turn=turn,
            later_turns=tuple(after_assistant(rest)),
            attempt=1,
        )
    return None


def turn_count(later: tuple[Json, ...]) -> int:
    """How many assistant turns a conversation has whose first one is followed by `later`."""
    count, before = 1, "assistant"
    for message in later:
        role = message["role"]
        if role != "assistant" and before == "assistant":
            count += 1
        before = role
    return count


def after_assistant(messages: list[Json]) -> list[Json]:
    """Without the assistant turns at its beginning: they are what was generated in another way."""
    skip = len(list(takewhile(lambda message: message["role"] == "assistant", messages)))
    return messages[skip:]
