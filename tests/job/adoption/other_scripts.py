"""Files as other scripts leave them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_lines(path: Path, *lines: dict[str, Any] | str) -> Path:
    """JSONL; a text stands as it is."""
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def batch_line(custom_id: str, content: str, **more: Any) -> dict[str, Any]:
    """A line of OpenAI's batch output."""
    body = completion(content, **more)
    return {
        "id": f"batch_req_{custom_id}",
        "custom_id": custom_id,
        "response": {"status_code": 200, "body": body},
        "error": None,
    }


def completion(content: str, *, finish_reason: str = "stop", tokens: int = 7, **message: Any) -> dict[str, Any]:
    """A chat completion, as a server sends it."""
    said = {"role": "assistant", "content": content, **message}
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_770_000_000, "model": "their-model",
        "choices": [{"index": 0, "message": said, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 5, "completion_tokens": tokens},
    }  # fmt: skip
