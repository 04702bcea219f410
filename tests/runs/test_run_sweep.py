"""Sweeps of the concurrency of whole runs, against real processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from live_run import LiveRun, write_prompts

from backend.__main__ import main
from backend.control.intents import await_answer, want_no_sweep, want_sweep
from backend.forecast.curve import knee
from backend.records import Intent, RunPhase
from backend.sweeps import Sweep, SweepState, newest_curve, sweeps_of

NewRun = Callable[..., LiveRun]
ROOT = Path(__file__).resolve().parents[2]
STORY = {1: 62, 4: 207, 8: 370, 16: 385, 32: 393, 48: 409}
STEADY = ("--mean", "300", "--log-sd", "0.5")


def newest(run: LiveRun) -> Sweep:
    return sweeps_of(run.run)[0]


def ask(run: LiveRun, intent: Intent) -> tuple[bool, str]:
    answer = await_answer(run.run, intent, 15.0)
    assert answer is not None, run.story()
    return answer.accepted, answer.message


def began(run: LiveRun, *levels: int, level_limit_s: float = 2.0, drain: bool = True) -> None:
    accepted, message = ask(run, want_sweep(run.run, levels, "test", level_limit_s=level_limit_s, drain=drain))
    assert accepted, message


def wait_sweep(run: LiveRun, state: SweepState, timeout_s: float = 60.0) -> Sweep:
    run.wait(lambda _: newest(run).state is state, timeout_s, what=f"no sweep {state}")
    return newest(run)


def test_a_sweep_measures_each_level_and_goes_back_to_what_is_wished(tmp_path: Path, new_run: NewRun) -> None:
    write_prompts(tmp_path / "A.jsonl", 2_000)
    run = new_run([{"name": "A", "path": "A.jsonl"}], args=["--speed", "20", *STEADY])
    run.start()
    run.wait(lambda s: s.in_flight == 16)

    began(run, 2, 8)
    accepted, message = ask(run, want_sweep(run.run, [4], "test"))
    assert (accepted, message) == (False, "A sweep is running already. Wait for its end, or cancel it first.")
    sweep = wait_sweep(run, SweepState.FINISHED)
    run.wait(lambda s: s.in_flight == 16, what="not back")
    run.set("A.max_samples", "10")
    status = run.wait_left()

    assert [level.concurrency for level in sweep.levels] == [2, 8]
    slow, quick = sweep.levels
    assert 20 * 60 < slow.tokens_per_s < 20 * 150
    assert 20 * 200 < quick.tokens_per_s < 20 * 400
    assert quick.first_token_s is not None
    assert quick.first_token_s < 1
    assert quick.running is not None
    assert 5 < quick.running <= 8
    curve = newest_curve(sweeps_of(run.run), 1)
    assert curve is not None
    assert [n for n, _ in curve.points] == [2, 8]
    assert status.phase is RunPhase.FINISHED
    run.check_exact()
    assert run.kinds()["sweep.level"] == 2


def test_a_sweep_is_cancelled_by_a_wish_and_ended_by_a_pause(tmp_path: Path, new_run: NewRun) -> None:
    write_prompts(tmp_path / "A.jsonl", 2_000)
    run = new_run([{"name": "A", "path": "A.jsonl"}], args=["--speed", "20", *STEADY])
    run.start()
    run.wait(lambda s: s.in_flight == 16)
    assert ask(run, want_no_sweep(run.run, "test")) == (False, "No sweep is running: there is nothing to cancel.")

    began(run, 1, 4, level_limit_s=600, drain=False)
    run.wait(lambda s: s.in_flight == 1, 10, what="not down to one")
    assert ask(run, want_no_sweep(run.run, "test"))[0]
    assert wait_sweep(run, SweepState.CANCELLED).reason == "test cancelled it"
    run.wait(lambda s: s.in_flight == 16, what="not back")

    began(run, 8, level_limit_s=600)
    run.pause("A")
    reason = wait_sweep(run, SweepState.ENDED).reason
    assert reason == "no dataset runs here (they are paused, killed, held, finished, or sent to an API)"


@pytest.mark.drill
def test_the_levels_of_a_sweep_outlive_its_supervisor_which_says_that_it_was_interrupted(
    tmp_path: Path, new_run: NewRun
) -> None:
    write_prompts(tmp_path / "A.jsonl", 2_000)
    run = new_run([{"name": "A", "path": "A.jsonl"}], args=["--speed", "20", *STEADY])
    run.start()
    run.wait(lambda s: s.in_flight == 16)
    began(run, 2, 8, 16, level_limit_s=2)
    run.wait(lambda _: len(newest(run).levels) == 1, what="no level")

    run.kill_supervisor()
    run.start()
    run.wait(lambda s: s.in_flight == 16, what="not back")

    sweep = newest(run)
    assert (sweep.state, sweep.reason) == (SweepState.INTERRUPTED, "its supervisor ended")
    assert [level.concurrency for level in sweep.levels][:1] == [2]
    assert "levels are kept" in run.words("sweep.interrupted")
    accepted, _ = ask(run, want_sweep(run.run, [1, 2], "test"))
    assert accepted


def test_on_the_command_line_a_file_is_read_and_ctrl_c_cancels_the_sweep_and_not_the_run(
    tmp_path: Path, new_run: NewRun, capsys: pytest.CaptureFixture[str]
) -> None:
    write_prompts(tmp_path / "A.jsonl", 2_000)
    run = new_run([{"name": "A", "path": "A.jsonl"}], args=["--speed", "20", *STEADY])
    place, bench = str(run.run.root), tmp_path / "bench.jsonl"
    bench.write_text("".join(json.dumps({"max_concurrency": n, "output_throughput": v}) + "\n" for n, v in STORY.items()))
    assert main(["sweep", place, "--concurrency", "1,2"]) == 1
    assert "is not running, and a sweep measures a server at work" in capsys.readouterr().err
    run.start()
    run.wait(lambda s: s.in_flight == 16)

    assert main(["sweep", place, "--import", str(bench), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["sweep"]["source"], told["knee"]) == ("bench.jsonl", 8)
    assert main(["sweep", place, "--concurrency", "4,1"]) == 1
    assert "Refused: sweep: the levels 4, 1 must ascend" in capsys.readouterr().err

    command = [sys.executable, "-m", "backend", "sweep", place, "--concurrency", "1,2", "--level-s", "600", "--abort"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        wait_sweep(run, SweepState.RUNNING)
        run.wait(lambda s: s.in_flight == 1)
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "The sweep is cancelled, the run goes on." in complaint
    wait_sweep(run, SweepState.CANCELLED)
    run.wait(lambda s: s.in_flight == 16, what="the run does not go on")
    assert main(["sweep", place]) == 0
    assert "Knee: 8 in flight" in capsys.readouterr().out


@pytest.mark.drill
@pytest.mark.timeout(450)
def test_a_whole_sweep_of_two_replicas_finds_the_knee_within_one_level(tmp_path: Path, new_run: NewRun) -> None:
    write_prompts(tmp_path / "A.jsonl", 20_000)
    curve = {2 * n: 2 * tokens_per_s for n, tokens_per_s in STORY.items() if n in (4, 8, 16, 48)}
    levels = list(curve)
    run = new_run(
        [{"name": "A", "path": "A.jsonl"}],
        engine={"replicas": 2},
        generation={"concurrency": levels[-1], "max_new_tokens": 3000},
        args=["--speed", "10", "--mean", "1000", "--log-sd", "1"],
    )
    run.start()
    run.wait(lambda s: s.in_flight == levels[-1])

    began(run, *levels, level_limit_s=40)
    sweep = wait_sweep(run, SweepState.FINISHED, 400)

    assert knee([(level.concurrency, level.tokens_per_s) for level in sweep.levels]) in levels[:3]
    assert all(level.known for level in sweep.levels), sweep.levels
    for level, true in zip(sweep.levels, curve.values(), strict=True):
        assert level.tokens_per_s == pytest.approx(10 * true, rel=0.08)
