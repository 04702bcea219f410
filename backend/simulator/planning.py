"""Which text answers a request: by the length rules, the tools it brings and the content faults that are on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson

from backend.simulator import lengths, tokens
from backend.simulator.faults import Faults
from backend.simulator.generation import GenerationRequest
from backend.simulator.settings import Settings
from backend.simulator.texts import TextKind, TextPlan

_ODD_TEXT = "The line\u2028separator, the next\u0085line and the \x00 are part of this answer.\u2029Done"
_SURROGATE_TEXT = "A half of a pair: \ud835 and the text goes on."
_NUMBER_WORDS = ("first", "second", "total", "whole")


def plan_answer(request: GenerationRequest, settings: Settings, faults: Faults) -> TextPlan:
    """The text for a request; equal requests get equal texts."""
    seed = settings.random_seed
    drawn = lengths.draw(seed, request.seed, request.prompt, request.occurrence)
    plan = lengths.plan_text(settings.rules, request.prompt, drawn, thinking=request.thinking)
    if request.tools:
        rule = next((rule for rule in settings.rules if rule.matches(request.prompt)), settings.rules[-1])
        if drawn.other < rule.tool_share:
            plan = _literal(plan, _tool_call(request, drawn.start), TextKind.TOOL_CALL)
    if not faults.active:
        return plan
    return _spoil(plan, request.prompt, faults)


def _spoil(plan: TextPlan, prompt: str, faults: Faults) -> TextPlan:
    if faults.strikes_prompt("empty-stop", prompt):
        return replace(plan, kind=TextKind.EMPTY, tokens_wanted=1)
    if faults.strikes_prompt("unclosed-think", prompt):
        return replace(plan, kind=TextKind.UNCLOSED, tokens_wanted=max(plan.tokens_wanted, 4), thinking=True)
    if faults.strikes_prompt("loop-text", prompt):
        return replace(plan, kind=TextKind.LOOP, tokens_wanted=10**9)
    if "answer-6mb" in faults:
        megabytes = faults.value("answer-6mb") or 6.0
        pairs = int(megabytes * 1_000_000 / (tokens.PARAGRAPH_CHARS + 2)) + 1
        return replace(plan, kind=TextKind.HUGE, tokens_wanted=2 * pairs + 1)
    if faults.strikes_prompt("u2028", prompt):
        return _literal(plan, _wrap(plan, _ODD_TEXT), TextKind.LITERAL)
    if faults.strikes_prompt("lone-surrogate", prompt):
        return _literal(plan, _wrap(plan, _SURROGATE_TEXT), TextKind.LITERAL)
    return plan


def _wrap(plan: TextPlan, answer: str) -> str:
    return f"<think>\nLet me write it.\n</think>\n\n{answer}" if plan.thinking else answer


def _literal(plan: TextPlan, text: str, kind: TextKind) -> TextPlan:
    return replace(plan, kind=kind, literal=text, tokens_wanted=len(tokens.encode(text)) + 1)


def _tool_call(request: GenerationRequest, start: int) -> str:
    tool = request.tools[start % len(request.tools)]
    function = tool.get("function") or {}
    properties: dict[str, Any] = (function.get("parameters") or {}).get("properties") or {}
    arguments = {name: _argument(schema, start) for name, schema in properties.items()}
    call = orjson.dumps({"name": function.get("name", "unknown"), "arguments": arguments}).decode()
    return f"<tool_call>\n{call}\n</tool_call>"


def _argument(schema: Any, start: int) -> Any:
    if not isinstance(schema, dict):
        return None
    if schema.get("enum"):
        return schema["enum"][start % len(schema["enum"])]
    match schema.get("type"):
        case "integer":
            return start % 1000
        case "number":
            return start % 1000 / 10
        case "boolean":
            return start % 2 == 0
        case "array":
            return []
        case "object":
            return {}
        case _:
            return _NUMBER_WORDS[start % len(_NUMBER_WORDS)]
