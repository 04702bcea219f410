"""Records to messages, and conversations turn by turn."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backend.prompts.forms import FormError, canonical, conversation
from backend.records import Json

USER = {"role": "user", "content": "u"}
ASSISTANT = {"role": "assistant", "content": "original"}


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def messages(record: dict[str, Any], field: str | None = None) -> list[Json]:
    return list(conversation(record, field, all_turns=False).messages)


def reason(record: dict[str, Any], field: str | None = None) -> str:
    with pytest.raises(FormError) as caught:
        conversation(record, field, all_turns=False)
    return str(caught.value)


@pytest.mark.parametrize("field", ["prompt", "question", "text"])
def test_a_text_field_is_one_user_message(field: str) -> None:
    assert messages({field: " a\x00b\u2028 ", "answer": "no"}) == [user(" a\x00b\u2028 ")]


def test_any_field_can_be_named() -> None:
    assert messages({"prompt": "no", "instruction": "yes"}, "instruction") == [user("yes")]
    assert "no field `gone`" in reason({"prompt": "no"}, "gone")


def test_the_first_known_field_that_is_not_null_wins() -> None:
    assert messages({"text": "3", "prompt": "2", "messages": [USER]}) == [USER]
    assert messages({"text": "3", "prompt": "2", "messages": None}) == [user("2")]


def test_openai_messages_keep_everything_and_lose_the_trailing_assistant_turns() -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": "x"}], "name": "me"}
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    result = {"role": "tool", "content": "42", "tool_call_id": "1"}
    assert messages({"messages": [parts, call, result, ASSISTANT, ASSISTANT]}) == [parts, call, result]


def test_a_prompt_field_may_hold_messages_and_messages_may_be_packed_as_json_text() -> None:
    assert messages({"prompt": [USER, ASSISTANT]}) == [USER]
    assert messages({"messages": json.dumps([USER, ASSISTANT])}) == [USER]
    assert messages({"prompt": "[1, 2] is a list"}) == [user("[1, 2] is a list")]


def test_sharegpt_speakers_become_roles() -> None:
    turns = [
        {"from": "system", "value": "s"},
        {"from": "human", "value": "h"},
        {"from": "gpt", "value": "g"},
        {"from": "observation", "value": "o"},
        {"from": "gpt", "value": "dropped"},
    ]
    assert [(m["role"], m["content"]) for m in messages({"conversations": turns})] == [
        ("system", "s"),
        ("user", "h"),
        ("assistant", "g"),
        ("tool", "o"),
    ]


def test_sharegpts_system_field_comes_first_unless_there_is_a_system_turn() -> None:
    turns = [{"from": "human", "value": "h"}]
    assert messages({"conversations": turns, "system": "s"})[0] == {"role": "system", "content": "s"}
    turns.insert(0, {"from": "system", "value": "own"})
    assert [m["content"] for m in messages({"conversations": turns, "system": "s"})] == ["own", "h"]


def test_tools_are_taken_as_list_or_json_text_and_bare_functions_are_wrapped() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    for tools in ([tool], json.dumps([tool]), [tool["function"]]):
        assert conversation({"prompt": "x", "tools": tools}, None, all_turns=False).tools == (tool,)
    for nothing in (None, [], "", "[]"):
        assert conversation({"prompt": "x", "tools": nothing}, None, all_turns=False).tools is None
    assert "`tools` must be a list of objects" in reason({"prompt": "x", "tools": [1]})
    assert "`tools` must be a list of objects" in reason({"prompt": "x", "tools": {"a": 1}})


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"answer": "x"}, "no prompt: none of messages, conversations, prompt, question, text"),
        ({"prompt": ""}, "empty prompt in `prompt`"),
        ({"prompt": " \n"}, "empty prompt in `prompt`"),
        ({"prompt": 3}, "`prompt` must be text or a list of messages, found 3"),
        ({"messages": "hello"}, "`messages` must be text or a list"),
        ({"messages": "[1"}, "begins like a list and is not JSON"),
        ({"messages": []}, "has no messages"),
        ({"messages": ["hello"]}, "messages[0] must be an object"),
        ({"messages": [{"role": "alien", "content": "x"}]}, "messages[0].role must be one of"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "messages[0].role must be one of"),
        ({"messages": [USER, {"role": "user"}]}, "messages[1] has no content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content must be text"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "parts are not all objects"),
        ({"messages": [ASSISTANT]}, "no user turn"),
        ({"messages": [{"role": "system", "content": "x"}]}, "no user turn"),
        ({"messages": [{"role": "user", "content": " "}]}, "no user turn has any content"),
        ({"conversations": [{"from": "alien", "value": "x"}]}, "conversations[0].from must be"),
        ({"conversations": [{"from": "human", "value": "x"}, 5]}, "conversations[1] must be an object with from and value"),
        ({"conversations": [{"from": "human", "value": 1}]}, "conversations[0].value must be text"),
    ],
)
def test_what_holds_no_prompt_is_told_why(record: dict[str, Any], words: str) -> None:
    assert words in reason(record)


def test_the_canonical_spelling_is_that_of_sorted_json() -> None:
    odd = {"role": "user", "name": "é", "content": [{"type": "text", "text": "\ud835"}]}
    turns = [odd, {"content": None, "role": "assistant"}, {"role": "tool", "content": 'q"\n'}, ASSISTANT, USER]
    tools = [{"type": "function", "function": {"name": "f", "a": 1.0}}]
    asked = conversation({"messages": turns, "tools": tools}, None, all_turns=True)
    expected = json.dumps([asked.messages, asked.tools, asked.later], sort_keys=True, separators=(",", ":"))
    assert canonical(asked) == expected
    assert asked.later
