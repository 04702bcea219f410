"""The real server that the tests of this folder share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_server import RealServer, start_server

from backend.engine_cpu.place import EnginePlace, missing_reason

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def engine_place() -> EnginePlace:
    """The installed CPU engine; without it tests are skipped, and in CI they fail."""
    place = EnginePlace(CHECKOUT)
    if reason := missing_reason(place):
        if os.environ.get("CI"):
            pytest.fail(f"the real engine must be there in CI: {reason}")
        pytest.skip(f"no real engine: {reason}")
    return place


@pytest.fixture(scope="session")
def real_server(engine_place: EnginePlace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """One server for the whole session; tests leave it idle and alive."""
    server = start_server(engine_place, tmp_path_factory.mktemp("real_server"))
    yield server
    server.stop()
    assert server.session_processes() == []
