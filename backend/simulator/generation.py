"""What a request asks for, as values: the bodies of /v1/chat/completions and /generate, checked and made equal."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import orjson

from backend.simulator import tokens

Json = dict[str, Any]

_SAMPLING_FIELDS_TEXT = (
    "max_new_tokens stop stop_token_ids stop_regex temperature top_p top_k min_p frequency_penalty presence_penalty "
    "repetition_penalty min_new_tokens n json_schema regex ebnf structural_tag ignore_eos skip_special_tokens "
    "spaces_between_special_tokens no_stop_trim stream_interval logit_bias sampling_seed custom_params beam_width "
    "watermark choice "
)
_SAMPLING_FIELDS = frozenset(_SAMPLING_FIELDS_TEXT.split())
_GENERATE_MAX_NEW_TOKENS = 128


class BadRequestError(Exception):
    """The request is answered with HTTP 400 and this message."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One text to generate."""

    rid: str
    prompt: str
    """After the chat template: what the model sees."""
    prompt_ids: list[int]
    max_new_tokens: int | None
    stream: bool
    thinking: bool
    seed: int | None
    occurrence: int
    tools: tuple[Json, ...]
    return_token_ids: bool = False
    return_prompt_token_ids: bool = False
    return_meta_info: bool = False
    include_usage: bool = False
    separate_reasoning: bool = True
    """False: a reasoning parser leaves the text in one piece."""


def most_new_tokens(request: GenerationRequest, context_length: int) -> int:
    """How many tokens may be generated. Raises BadRequestError where the context is too short for what is asked."""
    prompt_tokens = len(request.prompt_ids)
    if prompt_tokens >= context_length:
        raise BadRequestError(
            f"The input ({prompt_tokens} tokens) is longer than the model's context length ({context_length} tokens)."
        )
    if request.max_new_tokens is None:
        return context_length - prompt_tokens
    if prompt_tokens + request.max_new_tokens > context_length:
        raise BadRequestError(
            f"Requested token count exceeds the model's maximum context length of {context_length} tokens. You requested a "
            f"total of {prompt_tokens + request.max_new_tokens} tokens: {prompt_tokens} tokens from the input messages "
            f"and {request.max_new_tokens} tokens for the completion. Please reduce the number of tokens in the input "
            "messages or the completion to fit within the limit."
        )
    return request.max_new_tokens


def parse_json(data: bytes) -> Json:
    """The body as an object; accepts lone surrogates, which orjson does not."""
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError:
        import json

        try:
            body = json.loads(data)
        except ValueError as error:
            raise BadRequestError(f"JSON decode error: {error}") from error
    if not isinstance(body, dict):
        raise BadRequestError(f"expected a JSON object, found {type(body).__name__}")
    return body


def parse_chat(body: Json, *, thinking_default: bool) -> GenerationRequest:
    """A chat request. Raises BadRequestError with SGLang's words where it refuses."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequestError("Messages cannot be empty.")
    stream = bool(body.get("stream", False))
    for name in ("return_token_ids", "return_prompt_token_ids", "return_meta_info"):
        if stream and body.get(name):
            raise BadRequestError(f"{name} is not supported with stream=true.")
    kwargs = body.get("chat_template_kwargs") or {}
    thinking = bool(kwargs.get("enable_thinking", kwargs.get("thinking", thinking_default)))
    tools = tuple(tool for tool in body.get("tools") or () if isinstance(tool, dict))
    prompt = _apply_template(messages, tools, thinking=thinking)
    given_ids = body.get("input_ids")
    prompt_ids = given_ids if isinstance(given_ids, list) else tokens.encode(prompt)
    cap = body.get("max_completion_tokens") or body.get("max_tokens")
    custom = body.get("custom_params") or {}
    return GenerationRequest(
        rid=_rid_of(body),
        prompt=prompt,
        prompt_ids=prompt_ids,
        max_new_tokens=_checked_cap(cap),
        stream=stream,
        thinking=thinking,
        seed=body.get("seed"),
        occurrence=int(custom.get("occurrence", 0)),
        tools=tools,
        return_token_ids=bool(body.get("return_token_ids")),
        return_prompt_token_ids=bool(body.get("return_prompt_token_ids")),
        return_meta_info=bool(body.get("return_meta_info")),
        include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
        separate_reasoning=bool(body.get("separate_reasoning", True)),
    )


def parse_generate(body: Json, *, thinking_default: bool) -> GenerationRequest:
    """A /generate request with one prompt. Raises BadRequestError."""
    sampling = body.get("sampling_params") or {}
    for name in sampling:
        if name not in _SAMPLING_FIELDS:
            raise BadRequestError(f"unknown field `{name}`, expected one of {', '.join(sorted(_SAMPLING_FIELDS))}")
    text, ids = body.get("text"), body.get("input_ids")
    if text is None and ids is None:
        raise BadRequestError("Either text, input_ids or input_embeds should be provided.")
    if isinstance(text, list) or (isinstance(ids, list) and ids and isinstance(ids[0], list)):
        raise BadRequestError("the simulator takes one prompt a request, not a batch")
    custom = sampling.get("custom_params") or {}
    prompt = str(text) if text is not None else _decode_input(ids)
    return GenerationRequest(
        rid=_rid_of(body),
        prompt=prompt,
        prompt_ids=ids if ids is not None else tokens.encode(prompt),
        max_new_tokens=_checked_cap(sampling.get("max_new_tokens", _GENERATE_MAX_NEW_TOKENS)),
        stream=bool(body.get("stream", False)),
        thinking=thinking_default and "<think>\n\n</think>" not in prompt,
        seed=sampling.get("sampling_seed"),
        occurrence=int(custom.get("occurrence", 0)),
        tools=(),
        return_prompt_token_ids=bool(body.get("return_prompt_token_ids")),
    )


def _rid_of(body: Json) -> str:
    rid = body.get("rid")
    if rid is None or rid == "":
        return uuid.uuid4().hex
    if not isinstance(rid, str):
        raise BadRequestError(f"rid must be a string, found {type(rid).__name__}")
    return rid


def _checked_cap(cap: Any) -> int | None:
    if cap is None:
        return None
    if not isinstance(cap, int) or cap < 1:
        raise BadRequestError(f"max_new_tokens must be at least 1, got {cap}.")
    return cap


def _decode_input(ids: Any) -> str:
    if not isinstance(ids, list) or not all(isinstance(one, int) for one in ids):
        raise BadRequestError("input_ids must be a list of integers.")
    if any(not 0 <= one < tokens.VOCABULARY_SIZE for one in ids):
        raise BadRequestError(f"input_ids must be between 0 and {tokens.VOCABULARY_SIZE - 1}.")
    return tokens.decode(ids)


def _apply_template(messages: list[Any], tools: tuple[Json, ...], *, thinking: bool) -> str:
    parts: list[str] = []
    if tools:
        parts.append(f"<|im_start|>system\n# Tools\n{orjson.dumps(tools).decode()}<|im_end|>\n")
    for message in messages:
        if not isinstance(message, dict) or "role" not in message:
            raise BadRequestError("each message needs a role and content")
        parts.append(f"<|im_start|>{message['role']}\n{_text_of(message)}<|im_end|>\n")
    parts.append("<|im_start|>assistant\n" + ("" if thinking else "<think>\n\n</think>\n\n"))
    return "".join(parts)


def _text_of(message: Json) -> str:
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    if isinstance(content, list):
        text = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if message.get("tool_calls"):
        import json

        text += "<tool_call>\n" + json.dumps(message["tool_calls"]) + "\n</tool_call>"
    return text
