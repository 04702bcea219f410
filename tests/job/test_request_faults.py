"""Which faults are tried again, in whose words, and how long a server asks to wait."""

from __future__ import annotations

import email.utils
import time

import pytest

from backend.job.request_faults import DeniedError, RejectedError, RetryableError, fault, retry_after_s, server_words


@pytest.mark.parametrize(
    ("status", "kind"),
    [(status, RetryableError) for status in (408, 429, 499, 500, 502, 503, 504, 529, 599)]
    + [(status, RejectedError) for status in (400, 413, 414, 422, 451)]
    + [(status, DeniedError) for status in (401, 402, 403, 404, 405)],
)
def test_a_status_says_who_is_to_blame(status: int, kind: type[Exception]) -> None:
    error = fault(status, b'{"error": {"message": "the words"}}', None)
    assert type(error) is kind
    assert str(error) == f"HTTP {status}: the words"


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b'{"object":"error","message":"too long","code":400}', "too long"),
        (b'{"error":"Unauthorized"}', "Unauthorized"),
        (b'{"error":{"message":"no"}}', "no"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b'{"detail":[{"loc":["body"],"msg":"bad"}]}', '[{"loc": ["body"], "msg": "bad"}]'),
        (b"  Bad Gateway\n", "Bad Gateway"),
        (b"", "(no words)"),
        (b"\xff", "\ufffd"),
        (b"null", "null"),
    ],
)
def test_a_servers_words_are_found_in_whatever_they_are_wrapped(payload: bytes, words: str) -> None:
    assert server_words(payload) == words


def test_a_servers_words_are_cut() -> None:
    assert len(server_words(b"x" * 10_000)) == 2_000


@pytest.mark.parametrize(
    ("header", "words", "seconds"),
    [
        ("3", "", 3.0),
        ("0.5", "", 0.5),
        ("-1", "", 0.0),
        ("soon", "", None),
        ("nan", "", None),
        ("inf", "", None),
        (None, "rate limit: please try again in 120ms", 0.12),
        (None, "Try again in 2 s", 2.0),
        (None, "retry after 1.5s", 1.5),
        (None, "retry in 2m", 120.0),
        (None, "Please try again in 1m2.5s. Visit our page", 62.5),
        (None, "Please retry after 20 seconds.", 20.0),
        (None, "busy", None),
    ],
)
def test_how_long_a_server_asks_to_wait(header: str | None, words: str, seconds: float | None) -> None:
    assert retry_after_s(header, words) == seconds


def test_a_date_to_wait_for_is_understood() -> None:
    later = email.utils.formatdate(time.time() + 30, usegmt=True)
    assert retry_after_s(later, "") == pytest.approx(30, abs=2)
    assert retry_after_s(email.utils.formatdate(0, usegmt=True), "") == 0.0
