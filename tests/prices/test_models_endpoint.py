"""Prices are fetched on demand, kept with source and day, and hostile or broken answers are told in words."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from backend.costs.prices import Prices
from backend.prices import models_endpoint
from backend.prices.models_endpoint import PricesError, fetch_prices, kept_file, kept_prices, parse_models

NOW = 1_772_000_000.0  # 25 February 2026
PRICED = {
    "id": "qwen/qwen3-8b",
    "canonical_slug": "qwen/qwen3-8b-04-28",
    "hugging_face_id": "Qwen/Qwen3-8B",
    "pricing": {
        "prompt": "0.000000035",
        "completion": "0.000000138",
        "input_cache_read": "0.00000001",
        "internal_reasoning": "0",
        "request": "0",
    },
}
ODD = [
    {"id": "auto", "pricing": {"prompt": "-1", "completion": "-1"}},
    {"id": "no-number", "pricing": {"prompt": "NaN", "completion": "Infinity"}},
    {"id": "words", "pricing": {"prompt": "cheap", "completion": 0.1}},
    {"id": "none", "pricing": None},
    {"pricing": {"prompt": "1"}},
    "a model",
]


class Endpoint:
    """A models endpoint that answers what it is told to."""

    def __init__(self) -> None:
        self.status, self.body, self.headers = 200, json.dumps({"data": [PRICED, *ODD]}).encode(), {}
        self.asked: list[dict[str, str]] = []


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Endpoint, str]]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    said = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said.asked.append({"path": self.path, **self.headers})
            self.send_response(said.status)
            for name, value in {"Content-Length": str(len(said.body)), **said.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said.body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield said, f"http://127.0.0.1:{server.server_port}/api/v1"
    server.shutdown()
    server.server_close()
    thread.join()


def test_fetched_prices_are_kept_with_their_source_and_day(endpoint: tuple[Endpoint, str]) -> None:
    said, address = endpoint
    assert fetch_prices(address, NOW) == 1
    found = kept_prices(f"{address}/", "qwen/qwen3-8b")
    assert found.input_per_mtok is not None
    assert found.output_per_mtok is not None
    assert found.cached_input_per_mtok is not None
    assert [p.value for p in found.all] == [Decimal("0.035"), Decimal("0.01"), Decimal("0.138")]
    assert (found.output_per_mtok.source, found.output_per_mtok.as_of) == (f"{address}/models", date(2026, 2, 25))
    assert found.reasoning_per_mtok is None  # not billed apart
    assert said.asked[0]["path"] == "/api/v1/models"
    assert "Authorization" not in said.asked[0]


def test_what_is_no_price_is_unknown(endpoint: tuple[Endpoint, str]) -> None:
    fetch_prices(endpoint[1], NOW)
    for model in ("auto", "no-number", "words", "none", "not there"):
        assert kept_prices(endpoint[1], model) == Prices()


def test_before_anything_was_fetched_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kept_prices("https://api.example.org/v1", "m") == Prices()


@pytest.mark.parametrize(
    "kept", ["", "[]", '{"fetched_at": 1e999, "models": {}, "source": ""}', '{"fetched_at": 1, "models": 3}']
)
def test_a_damaged_file_of_prices_is_as_none(kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = kept_file("https://api.example.org/v1")
    path.parent.mkdir()
    path.write_text(kept)
    assert kept_prices("https://api.example.org/v1", "m") == Prices()


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, b"{}", "answers 401 to a question without a key"),
        (200, b"<html>", "does not answer with a list of models"),
        (200, b'{"data": {}}', "does not answer with a list of models"),
        (200, b"[" * 100_000, "does not answer with a list of models"),
        (200, b'{"data": [{"id": "m"}]}', "lists 1 models and tells no price"),
    ],
)
def test_an_endpoint_without_prices_is_told_in_words(
    endpoint: tuple[Endpoint, str], status: int, body: bytes, words: str
) -> None:
    endpoint[0].status, endpoint[0].body = status, body
    with pytest.raises(PricesError, match=words):
        fetch_prices(endpoint[1], NOW)
    assert not kept_file(endpoint[1]).exists()


def test_a_redirect_is_not_followed(endpoint: tuple[Endpoint, str]) -> None:
    said, address = endpoint
    said.status, said.headers = 302, {"Location": f"{address}/elsewhere"}
    with pytest.raises(PricesError, match="answers 302"):
        fetch_prices(address, NOW)
    assert len(said.asked) == 1


def test_an_endless_answer_is_not_read_to_its_end(endpoint: tuple[Endpoint, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models_endpoint, "LARGEST_BYTES", 1 << 17)
    endpoint[0].body = b" " * (1 << 20)
    with pytest.raises(PricesError, match="not used"):
        fetch_prices(endpoint[1], NOW)


def test_nobody_who_answers_and_a_wrong_address_are_told() -> None:
    with pytest.raises(PricesError, match="cannot be asked"):
        fetch_prices("http://127.0.0.1:9/v1", NOW)
    with pytest.raises(PricesError, match="begins with https"):
        fetch_prices("file:///etc", NOW)


def test_prices_for_one_token_become_prices_for_a_million_exactly() -> None:
    pricing = {"prompt": "0.0000003333333333333333", "completion": "0.00000143"}
    found = parse_models(json.dumps({"data": [{"id": "m", "pricing": pricing}]}).encode(), "here")
    assert {k: Decimal(v) for k, v in found["m"].items()} == {
        "input_per_mtok": Decimal("0.3333333333333333"),
        "output_per_mtok": Decimal("1.43"),
    }
