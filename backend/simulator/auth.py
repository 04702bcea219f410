"""Who may call what: SGLang's three classes of endpoints and its two keys."""

from __future__ import annotations

import hmac

_OPEN_PREFIXES = ("/health", "/ready", "/metrics", "/simulator")
_ADMIN_OPTIONAL = frozenset({"/abort_request", "/pause_generation", "/continue_generation", "/flush_cache"})


def is_allowed(path: str, authorization: str | None, *, api_key: str | None, admin_api_key: str | None) -> bool:
    """Whether a request may pass. Admin endpoints need the admin key if there is one, and then take no other."""
    if path.startswith(_OPEN_PREFIXES):
        return True
    needed = admin_api_key if path in _ADMIN_OPTIONAL and admin_api_key else api_key
    if needed is None:
        return True
    given = (authorization or "").removeprefix("Bearer ")
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), needed.encode())
