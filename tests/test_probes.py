"""What a probe told is kept and read again, the newest of each API."""

from __future__ import annotations

from contextlib import closing
from decimal import Decimal
from pathlib import Path

from backend.probes import Probe, create_table, read_probes, write
from backend.run_dir import open_state
from tests.made_run import make_run


def probe(api: str = "a", at: float = 1.0, **more: object) -> Probe:
    return Probe(api=api, model="m", at=at, asked=16, answered=15, failed=1, rate_limited=2, streams=8, **more)  # type: ignore[arg-type]


def test_the_newest_probe_of_each_api_comes_back_as_it_was(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    newest = probe("a", 3.0, cost_usd=Decimal("0.0123456789012345678"), prompt_tokens=100, cached_tokens=25)
    with closing(open_state(run)) as con:
        create_table(con)
        for each in (probe("a", 1.0), probe("b", 2.0, completion_tokens=1500), newest):
            write(con, each)
    assert read_probes(run) == {"a": newest, "b": probe("b", 2.0, completion_tokens=1500)}
    assert newest.cached_share == 0.25
    assert read_probes(run)["b"].mean_tokens == 100


def test_without_a_probe_there_is_none(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert read_probes(run) == {}
    with closing(open_state(run)) as con:
        create_table(con)
        con.execute("INSERT INTO probes (at, api, figures) VALUES (1, 'a', '{\"of\": \"another version\"}')")
    assert read_probes(run) == {}


def test_what_was_not_measured_is_unknown() -> None:
    bare = probe()
    assert (bare.mean_tokens, bare.cached_share, bare.cost_usd) == (None, None, None)
