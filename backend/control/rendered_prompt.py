"""A prompt as a server that runs already renders it.

Asked to make one token, it tells the ids that it was given; it decodes them, too.
"""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from typing import Any, Final

from backend.config import DatasetConfig, RunConfig
from backend.control import ControlError
from backend.records import Json, Prompt

TIMEOUT_S: Final = 20.0
LARGEST_BYTES: Final = 8 << 20


def render(settings: RunConfig, dataset: DatasetConfig, prompt: Prompt) -> str:
    """The chat template's text for this prompt, by the first of engine.urls. Raises ControlError."""
    base = settings.engine.urls[0].rstrip("/")
    key = os.environ.get(settings.engine.api_key_env) if settings.engine.api_key_env else None
    sampling = settings.sampling_for(dataset)
    body: Json = {
        "model": settings.model.served_name or settings.model.path,
        "messages": list(prompt.messages),
        "max_tokens": 1,
        "return_prompt_token_ids": True,
        "chat_template_kwargs": sampling.chat_template_kwargs,
    }
    if prompt.tools:
        body["tools"] = list(prompt.tools)
    answer = _post(f"{base}/v1/chat/completions", body, key)
    try:
        ids = answer["choices"][0]["prompt_token_ids"]
    except (KeyError, IndexError, TypeError):
        ids = None
    if not isinstance(ids, list):
        raise ControlError(f"{base} does not tell the token ids of a prompt: it is no SGLang, or an old one.")
    text = _post(f"{base}/detokenize", {"tokens": ids, "skip_special_tokens": False}, key).get("text")
    if not isinstance(text, str):
        raise ControlError(f"{base}/detokenize gave no text.")
    return text


def _post(url: str, body: Json, key: str | None) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            answer = json.loads(response.read(LARGEST_BYTES))
    except urllib.error.HTTPError as error:
        words = error.read(300).decode(errors="replace")
        raise ControlError(f"{url} refused with {error.code}: {words}") from None
    except (urllib.error.URLError, OSError, http.client.HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise ControlError(f"{url} cannot be asked: {reason}. Look whether the server runs there.") from None
    if not isinstance(answer, dict):
        raise ControlError(f"{url} answered with something else than was expected.")
    return answer
