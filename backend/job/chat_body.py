"""The JSON of a chat completion as far as engine and APIs are asked alike: the prompt, its tools, how to sample, the seed.

What only one of them understands is added by `request_driver.py` and `api_driver.py`.
"""

from __future__ import annotations

import json

import orjson

from backend.config import SamplingConfig
from backend.records import Json, Prompt


def chat_body(
    prompt: Prompt, sampling: SamplingConfig, *, model: str, max_tokens_field: str, own: Json, extra_body: Json
) -> bytes:
    """The JSON of one request. `own`: fields of this kind of server; `extra_body`: the user's, which override all others.

    A seed is made different for each sample (and the same again for the same sample), so that equal prompts are two samples.
    """
    body: Json = {"model": model, "messages": list(prompt.messages)} | own
    if prompt.tools:
        body["tools"] = list(prompt.tools)
    if sampling.max_new_tokens is not None:
        body[max_tokens_field] = sampling.max_new_tokens
    for key in ("temperature", "top_p", "top_k"):
        if (value := getattr(sampling, key)) is not None:
            body[key] = value
    if sampling.seed is not None:
        body["seed"] = sample_seed(sampling.seed, prompt)
    if sampling.chat_template_kwargs:
        body["chat_template_kwargs"] = sampling.chat_template_kwargs
    body |= extra_body
    try:
        return orjson.dumps(body)
    except (TypeError, orjson.JSONEncodeError):  # lone surrogates and integers beyond 64 bits: exact, but slower
        return json.dumps(body).encode()


def sample_seed(seed: int, prompt: Prompt) -> int:
    """A seed in 0..2**31-1 that depends on the run's seed, the sample and its attempt."""
    mixed = seed & 0xFFFFFFFF
    for byte in f"{prompt.dataset}\0{prompt.sample_id}\0{prompt.turn}\0{prompt.attempt}".encode("utf-8", "surrogatepass"):
        mixed = ((mixed ^ byte) * 0x01000193) & 0xFFFFFFFF  # FNV-1a, 32 bits
    return mixed & 0x7FFFFFFF
