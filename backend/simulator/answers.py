"""The bodies of answers: text, token ids, finish reason, usage and meta_info in SGLang's shape."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from typing import Any

import orjson

from backend.simulator import tokens
from backend.simulator.billing import cost_usd
from backend.simulator.engine import Generation
from backend.simulator.faults import Faults
from backend.simulator.generation import Json
from backend.simulator.sequences import FinishKind
from backend.simulator.settings import Profile, Settings
from backend.simulator.texts import split_reasoning, write

_TOOL_CALL = re.compile(r"<tool_call>\n(\{.*\})\n</tool_call>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class WrittenText:
    """A finished (or aborted) text and its parts. `answer` is all of the text where no parser splits it."""

    ids: list[int]
    raw: str
    reasoning: str | None
    answer: str
    reasoning_tokens: int


def write_text(generation: Generation, settings: Settings) -> WrittenText:
    """What the request has generated so far."""
    ids = write(generation.plan, generation.sequence.generated)
    raw = tokens.decode(ids)
    if settings.reasoning_parser is None and settings.profile is not Profile.API:
        return WrittenText(ids, raw, None, raw, 0)
    reasoning, answer = split_reasoning(raw)
    reasoning_tokens = 0
    if reasoning is not None:
        reasoning_tokens = ids.index(tokens.END_THINK) + 1 if tokens.END_THINK in ids else len(ids)
    if not generation.request.separate_reasoning:
        reasoning, answer = None, raw
    return WrittenText(ids, raw, reasoning, answer, reasoning_tokens)


def finish_json(generation: Generation) -> Json:
    """SGLang's finish_reason object."""
    sequence = generation.sequence
    finish = sequence.finish
    if finish is None:
        raise ValueError(f"request {sequence.rid} is not finished")
    match finish.kind:
        case FinishKind.STOP:
            return {"type": "stop", "matched": tokens.END}
        case FinishKind.LENGTH:
            return {"type": "length", "length": sequence.generated}
        case FinishKind.ABORT:
            return {"type": "abort", "message": finish.message, "status_code": finish.status, "err_type": None}


def meta_info(generation: Generation, settings: Settings, faults: Faults, text: WrittenText) -> Json:
    """SGLang's meta_info; aborts out of the queue know no prompt_tokens."""
    sequence = generation.sequence
    end = sequence.finished_at if sequence.finished_at is not None else sequence.arrived_at
    info: Json = {
        "id": sequence.rid,
        "finish_reason": finish_json(generation),
        "prompt_tokens": sequence.prompt_tokens,
        "weight_version": "default",
        "num_retractions": sequence.retractions,
        "reasoning_tokens": text.reasoning_tokens,
        "completion_tokens": sequence.generated,
        "cached_tokens": sequence.cached_tokens,
        "cached_tokens_details": None,
        "dp_rank": None,
        "e2e_latency": end - sequence.arrived_at,
    }
    if sequence.finish is not None and sequence.finish.was_waiting:
        del info["prompt_tokens"]
    elif settings.enable_metrics:
        info |= _timings(generation, end)
    if settings.speculative_algorithm:
        steps = max(1, round(sequence.generated / settings.accept_length))
        info |= {
            "spec_accept_rate": (settings.accept_length - 1) / 3,
            "spec_accept_length": settings.accept_length,
            "spec_verify_ct": steps,
            "spec_num_correct_drafts": sequence.generated - steps,
            "spec_num_proposed_drafts": 3 * steps,
        }
    if faults.strikes_prompt("big-id", generation.request.prompt):
        info["request_number"] = 2**63 + 5
        info["many_keys"] = {f"key_{index:03d}": index for index in range(200)}
    return info


def _timings(generation: Generation, end: float) -> Json:
    sequence = generation.sequence
    admitted = sequence.admitted_at if sequence.admitted_at is not None else end
    first = sequence.first_token_at if sequence.first_token_at is not None else end
    received = generation.received_at
    decoding_s = end - first
    return {
        "queue_time": admitted - sequence.arrived_at,
        "forward_entry_time": received + admitted - sequence.arrived_at,
        "prefill_finished_time": received + first - sequence.arrived_at,
        "request_received_ts": received,
        "first_token_latency": first - sequence.arrived_at,
        "request_finished_ts": received + end - sequence.arrived_at,
        "response_sent_to_client_ts": received + end - sequence.arrived_at,
        "decode_throughput": (sequence.generated - 1) / decoding_s if decoding_s > 0 else None,
    }


def usage_json(generation: Generation, settings: Settings, faults: Faults, text: WrittenText) -> Json | None:
    """The usage block; None while its fault is on."""
    sequence, prompt = generation.sequence, generation.request.prompt
    if faults.strikes_prompt("usage-null", prompt):
        return None
    completion = sequence.generated + (7 if faults.strikes_prompt("wrong-usage", prompt) else 0)
    usage: Json = {
        "prompt_tokens": sequence.prompt_tokens,
        "total_tokens": sequence.prompt_tokens + completion,
        "completion_tokens": completion,
        "prompt_tokens_details": None,
        "reasoning_tokens": text.reasoning_tokens,
    }
    if settings.profile is Profile.API:
        prices = settings.prices
        del usage["reasoning_tokens"]
        usage["prompt_tokens_details"] = {"cached_tokens": sequence.cached_tokens}
        usage["completion_tokens_details"] = {"reasoning_tokens": text.reasoning_tokens}
        if "cost-missing" not in faults:
            usage["cost"] = float(cost_usd(prices, sequence.prompt_tokens, sequence.cached_tokens, completion))
    elif settings.enable_cache_report:
        usage["prompt_tokens_details"] = {"cached_tokens": sequence.cached_tokens}
    return usage


def told_model(settings: Settings, faults: Faults) -> str:
    """The model that an answer names."""
    return "somebody/else" if faults.strikes("other-model") else settings.model_name


def tool_calls_of(answer: str, settings: Settings) -> list[Json] | None:
    """The calls in an answer where a parser is on; None otherwise."""
    if settings.tool_call_parser is None and settings.profile is not Profile.API:
        return None
    match = _TOOL_CALL.search(answer)
    if match is None:
        return None
    call = orjson.loads(match.group(1))
    arguments = orjson.dumps(call["arguments"]).decode()
    return [
        {
            "id": f"call_{call['name']}_0",
            "index": 0,
            "type": "function",
            "function": {"name": call["name"], "arguments": arguments},
        }
    ]


def chat_json(generation: Generation, settings: Settings, faults: Faults) -> Json:
    """The body of a chat completion that was not streamed."""
    request = generation.request
    text = write_text(generation, settings)
    finish = finish_json(generation)
    reason: str = finish["type"]
    content: str | None = text.answer
    calls = tool_calls_of(text.answer, settings) if request.tools else None
    if calls:
        content, reason = "", "tool_calls"
    if faults.strikes_prompt("content-null-length", request.prompt):
        content, reason = None, "length"
    choice: Json = {
        "index": 0,
        "message": {"role": "assistant", "content": content, "reasoning_content": text.reasoning, "tool_calls": calls},
        "logprobs": None,
        "finish_reason": reason,
        "matched_stop": finish.get("matched"),
    }
    if settings.profile is not Profile.API:
        if request.return_token_ids:
            choice["response_token_ids"] = text.ids
        if request.return_token_ids or request.return_prompt_token_ids:
            choice["prompt_token_ids"] = request.prompt_ids
        if request.return_meta_info:
            choice["meta_info"] = meta_info(generation, settings, faults, text)
    return {
        "id": request.rid,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": told_model(settings, faults),
        "choices": [choice],
        "usage": usage_json(generation, settings, faults, text),
        "metadata": {"weight_version": "default"},
    }


def generate_json(generation: Generation, settings: Settings, faults: Faults) -> Json:
    """The body of /generate: the raw text, tags included."""
    text = write_text(generation, settings)
    body: Json = {
        "text": text.raw,
        "output_ids": text.ids,
        "meta_info": meta_info(generation, settings, faults, text),
    }
    if generation.request.return_prompt_token_ids:
        body["prompt_token_ids"] = generation.request.prompt_ids
    return body


def dump(body: Any) -> bytes:
    """JSON bytes; falls back to escapes for what orjson refuses (lone surrogates, integers beyond 64 bits)."""
    try:
        return orjson.dumps(body)
    except TypeError:
        return json.dumps(body).encode()
