"""A route is written as it is read, and a wrong one is answered with those that there are."""

from __future__ import annotations

import pytest

from backend.job.routes import Route, UnknownRouteError, parse_route

APIS = ["openrouter", "other"]


@pytest.mark.parametrize(
    ("text", "route", "sources", "words"),
    [
        ("local", Route(), {"local"}, "to the engine"),
        ("other", Route(local=False, api="other"), {"other"}, "to other"),
        ("both:other", Route(local=True, api="other"), {"local", "other"}, "to the engine and to other"),
    ],
)
def test_a_route_is_read_and_written(text: str, route: Route, sources: set[str], words: str) -> None:
    assert parse_route(text, APIS) == route
    assert str(route) == text
    assert route.sources == sources
    assert route.words() == words


@pytest.mark.parametrize("text", ["nobody", "both:local", "both:", "", None, 5, "Local"])
def test_what_is_no_route_is_refused_with_the_names_that_are(text: object) -> None:
    with pytest.raises(UnknownRouteError, match="its APIs are openrouter, other"):
        parse_route(text, APIS)


def test_without_an_api_it_is_said_how_to_add_one() -> None:
    with pytest.raises(UnknownRouteError, match=r"add \[api.NAME\]"):
        parse_route("openrouter", [])
