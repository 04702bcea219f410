"""Conversations turn by turn, each with the texts generated before."""

from __future__ import annotations

from backend.prompts.forms import conversation
from backend.prompts.turns import next_turn, turn_count
from backend.records import Json, Prompt

ASSISTANT = {"role": "assistant", "content": "original"}


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def made(text: str, *calls: str) -> Json:
    message: Json = {"role": "assistant", "content": text}
    return message | ({"tool_calls": [{"id": call, "type": "function"} for call in calls]} if calls else {})


def first_prompt(*turns: Json) -> Prompt:
    asked = conversation({"messages": list(turns)}, None, all_turns=True)
    return Prompt("d", 0, "x/t0", asked.messages, asked.tools, later_turns=asked.later)


def test_all_turns_begin_before_the_first_answer_to_a_user() -> None:
    greeting = {"role": "assistant", "content": "welcome"}
    prompt = first_prompt(greeting, user("1"), ASSISTANT, user("2"), ASSISTANT)
    assert prompt.messages == (greeting, user("1"))
    assert prompt.later_turns == (user("2"),)
    assert turn_count(prompt.later_turns) == 2


def test_each_turn_is_asked_with_the_texts_generated_before() -> None:
    prompt = first_prompt(user("1"), ASSISTANT, user("2"), ASSISTANT, ASSISTANT, user("3"))
    assert turn_count(prompt.later_turns) == 3
    second = next_turn(prompt, made("a"))
    assert second is not None
    assert (second.sample_id, second.turn, second.position) == ("x/t1", 1, 0)
    assert second.messages == (user("1"), made("a"), user("2"))
    third = next_turn(second, made("b"))
    assert third is not None
    assert (third.sample_id, third.turn) == ("x/t2", 2)
    assert third.messages == (user("1"), made("a"), user("2"), made("b"), user("3"))
    assert next_turn(third, made("c")) is None


def test_a_conversation_of_one_turn_ends_after_it() -> None:
    prompt = first_prompt(user("1"), ASSISTANT)
    assert turn_count(prompt.later_turns) == 1
    assert next_turn(prompt, made("a")) is None


def test_results_of_tools_go_to_the_calls_that_were_generated() -> None:
    result = {"role": "tool", "content": "42", "tool_call_id": "old"}
    prompt = first_prompt(user("1"), made("", "old"), result, ASSISTANT, user("2"), ASSISTANT)
    assert turn_count(prompt.later_turns) == 3
    second = next_turn(prompt, made("", "new"))
    assert second is not None
    assert second.messages == (user("1"), made("", "new"), {**result, "tool_call_id": "new"})

    skipping = next_turn(prompt, made("no tool needed"))
    assert skipping is not None
    assert (skipping.turn, skipping.sample_id) == (2, "x/t2")
    assert skipping.messages == (user("1"), made("no tool needed"), user("2"))

    assert next_turn(prompt, made("", "new", "another")) is None
