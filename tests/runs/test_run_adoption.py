"""A run that goes on from what another script made: limits and counts hold from its first second on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from live_run import LiveRun

from backend.heartbeat import SupervisorState, supervisor_state
from backend.job.adoption.adopt import AdoptOptions, adopt
from backend.job.adoption.output_files import AdoptError
from backend.records import DatasetState, RunPhase
from tests.job.adoption.other_scripts import batch_line, write_lines


def test_only_the_rest_is_made_and_what_is_adopted_counts(tmp_path: Path, new_run: Callable[..., LiveRun]) -> None:
    for name in ("A", "B"):
        lines = (json.dumps({"id": f"{name}-{number}", "prompt": f"Say {number} of {name}."}) for number in range(40))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    run = new_run(
        [{"name": "A", "path": "A.jsonl", "max_samples": 30}, {"name": "B", "path": "B.jsonl", "token_budget": 900}],
        generation={"concurrency": 4, "max_new_tokens": 300},
    )
    some = write_lines(tmp_path / "A-out.jsonl", *(batch_line(f"A-{number}", "adopted", tokens=10) for number in range(20)))
    more = write_lines(tmp_path / "B-out.jsonl", *(batch_line(f"B-{number}", "adopted", tokens=100) for number in range(9)))
    adopt(run.run, "A", [some], AdoptOptions(), who="test")
    adopt(run.run, "B", [more], AdoptOptions(), who="test")
    assert supervisor_state(run.run, 0.0) is SupervisorState.NEVER_STARTED
    run.start()
    run.wait(lambda status: any(d.name == "A" and d.finished_samples >= 20 for d in status.datasets))
    with pytest.raises(AdoptError, match="Stop it first"):
        adopt(run.run, "A", [some], AdoptOptions(), who="test")
    status = run.wait_left()
    assert status.phase is RunPhase.FINISHED
    sources = {d.name: Counter(row.source for row in run.rows(d.name)) for d in status.datasets}
    assert sources == {"A": {"adopted": 20, "local": 10}, "B": {"adopted": 9}}
    assert {d.state for d in status.datasets} == {DatasetState.DONE}
    run.check_exact()
    adopt(run.run, "A", [some], AdoptOptions(), who="test")
    run.check_exact()
