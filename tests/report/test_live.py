"""The live view tells what is so, sends only what came since, reads a run once a second, and costs little."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from backend import telemetry_store
from backend.records import DatasetState, DatasetStatus, RunPhase
from backend.report.end_words import span_after
from backend.report.ending import EndKind
from backend.report.live import Live, LiveError, LiveRuns
from backend.report.live_series import read_points, step_for
from backend.run_dir import RunDir, open_state
from backend.telemetry import DriverSample, EngineSample, GpuSample, Sample
from tests.forecast.made_observation import dataset, observation
from tests.made_forecast import two_datasets, write_forecast
from tests.made_run import beat, holding_lock, job_status, make_run, write_event

NOW = 1_800_000_000.5
BEGAN = int(NOW) - 240
DATASETS = (
    DatasetStatus(
        "alpha", DatasetState.RUNNING, finished_samples=20, completion_tokens=2000, prompts=500, token_budget=100_000
    ),
    DatasetStatus("beta", DatasetState.WAITING, prompts=10, max_samples=3),
)


class Clock:
    """Time that stands until it is moved."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def telemetry(at: int) -> list[Sample]:
    """One second of two replicas that make 100 and 50 tokens/s; of finished samples come 10 tokens/s."""
    driver = DriverSample(
        key="run", at=at, in_flight=6, req_per_s=0.5, useful_tokens_per_s=10, mean_completion_tokens_recent=90,
        retried_total=4, completion_tokens_total=10 * (at - BEGAN),
    )  # fmt: skip
    gpu = GpuSample(key="GPU-1", at=at, index=1, utilization_percent=95, power_w=622.4, memory_used_bytes=125 * 2**30,
                    memory_total_bytes=141 * 2**30)  # fmt: skip
    return [
        EngineSample(key="0", at=at, decode_tokens_per_s=100, queued=2, token_usage=0.7, retracted_total=1),
        EngineSample(key="1", at=at, decode_tokens_per_s=50, queued=1, token_usage=0.2, retracted_total=0),
        driver,
        DriverSample(key="alpha", at=at, useful_tokens_per_s=10),
        gpu,
    ]


def write_seconds(run: RunDir, since: int, until: int) -> None:
    with closing(open_state(run)) as con:
        telemetry_store.create_tables(con)
        for at in range(since, until):
            telemetry_store.write(con, telemetry(at))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDir]:
    """A run that is at work since four minutes."""
    made = make_run(tmp_path)
    write_seconds(made, BEGAN, int(NOW))
    beat(made, job_status(datasets=DATASETS), NOW)
    with holding_lock(made, NOW):
        yield made


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def live(run: RunDir, clock: Clock) -> LiveRuns:
    return LiveRuns(lambda: run.root.parent, clock)


def figure(answer: Live, key: str) -> tuple[str, str, str]:
    found = next(f for f in answer.figures if f.key == key)
    return found.value, found.of, found.note


def test_the_first_line_says_what_runs_and_how_far_it_is(live: LiveRuns) -> None:
    answer = live.answer("demo", 0, "15m")
    assert answer.sentence == "Running alpha, 0 of 2 datasets done, 20 samples with 2.00k tokens."
    assert answer.detail == "tiny · engine simulated · 1 of 1 replica ready"
    assert answer.trouble is None


def test_what_simple_extrapolation_says_is_what_is_left_over_the_speed_of_the_last_minutes(live: LiveRuns) -> None:
    # alpha: 480 samples of 100 tokens come before its budget; beta: 3 of as many; at 150 tokens/s: 322 s
    assert live.answer("demo", 0, "15m").naive == "simple extrapolation: 5 min"


def test_nothing_is_extrapolated_before_an_answer_tells_how_long_they_are(live: LiveRuns, run: RunDir) -> None:
    beat(run, job_status(datasets=(DatasetStatus("alpha", DatasetState.RUNNING, prompts=500), DATASETS[1])), NOW)
    assert live.answer("demo", 0, "15m").naive is None


def test_the_end_is_that_of_the_newest_forecast(live: LiveRuns, run: RunDir, clock: Clock) -> None:
    end = live.answer("demo", 0, "15m").ending
    assert end is not None
    assert end.kind is EndKind.UNTOLD
    said = write_forecast(run, two_datasets(), NOW - 5)
    clock.now += 4
    beat(run, job_status(datasets=DATASETS), clock.now)
    end = live.answer("demo", 0, "15m").ending
    assert end is not None
    assert said.forecast.remaining is not None
    assert end.span == span_after(NOW - 5, said.forecast.remaining)


def test_the_mean_is_the_honest_one_with_the_naive_one_beside_it(live: LiveRuns, run: RunDir) -> None:
    early = dataset("alpha", finished_lengths=[200.0] * 60, in_flight_tokens=[50.0 * i for i in range(64)])
    one = write_forecast(run, observation([early, dataset("beta", "waiting")]), NOW - 5).forecast.datasets[0]
    assert one.mean_tokens is not None
    assert one.mean_tokens.p50 > 1000
    value, unit, note = figure(live.answer("demo", 0, "15m"), "mean")
    assert (value, unit) == (f"{one.mean_tokens.p50:,.0f}", "tok")
    assert "finished so far: 200" in note
    assert note.endswith(" · alpha")


def test_the_figures_are_those_of_the_last_seconds(live: LiveRuns) -> None:
    answer = live.answer("demo", 0, "15m")
    assert figure(answer, "speed") == ("150", "tok/s", "150 in 5 min · useful 10")
    assert figure(answer, "requests") == ("0.50", "req/s", "last minute · 0.50 in 15 min")
    assert figure(answer, "mean") == ("90", "tok", "last 5 min · all so far 100")
    assert figure(answer, "in_flight") == ("6", "of 8", "3 queued · KV 70% · 1 retracted")
    assert figure(answer, "tokens") == ("2.00k", "finished", "2% of 1 budget")
    assert figure(answer, "samples") == ("20", "of ≤ 503", "0 rejected · 4 sent again")


def test_a_gpu_says_what_it_can_and_a_dash_else(live: LiveRuns) -> None:
    (gpu,) = live.answer("demo", 0, "15m").gpus
    shown = (gpu.label, gpu.utilization, gpu.power, gpu.memory, gpu.temperature)
    assert shown == ("GPU 1", "95%", "622 W", "125/141 GiB", "–")


def test_charts_sum_over_replicas_in_at_most_600_points(live: LiveRuns) -> None:
    charts = live.answer("demo", 0, "15m").charts
    assert charts is not None
    assert (charts.source, charts.throughput.step_s) == ("engine", 2)
    assert charts.throughput.at == tuple(range(BEGAN, int(NOW), 2))
    assert set(charts.throughput.values["tokens_per_s"]) == {150.0}
    assert charts.finished.values["tokens"][-1] == 10 * 239


@pytest.mark.parametrize(
    ("span_s", "step_s"), [(60, 1), (900, 2), (7200, 20), (10_800, 60), (14 * 86_400, 3600), (400 * 86_400, 86_400)]
)
def test_a_point_is_never_finer_than_what_is_kept_and_never_one_of_too_many(span_s: int, step_s: int) -> None:
    assert step_for(span_s) == step_s
    assert span_s / step_s <= 600


@pytest.mark.parametrize("stretch", ["15m", "3h", "all"])
def test_what_came_since_makes_the_same_chart_as_asking_anew(stretch: str, live: LiveRuns, run: RunDir, clock: Clock) -> None:
    first = live.answer("demo", 0, stretch)
    assert first.charts is not None
    points = dict(zip(first.charts.throughput.at, first.charts.throughput.values["tokens_per_s"], strict=True))
    write_seconds(run, int(NOW), int(NOW) + 7)
    clock.now += 7
    beat(run, job_status(datasets=DATASETS), clock.now)
    since = live.answer("demo", first.seq, stretch)
    assert since.charts is not None
    assert len(since.charts.throughput.at) < 20
    points.update(zip(since.charts.throughput.at, since.charts.throughput.values["tokens_per_s"], strict=True))
    anew = live.answer("demo", 0, stretch).charts
    assert anew is not None
    assert points == dict(zip(anew.throughput.at, anew.throughput.values["tokens_per_s"], strict=True))


def test_events_come_once_they_happened_and_flapping_is_left_out(live: LiveRuns, run: RunDir, clock: Clock) -> None:
    write_event(run, "An old story.", NOW - 100, "warning")
    first = live.answer("demo", 0, "15m")
    assert [e["words"] for e in first.events] == ["An old story"]
    with closing(open_state(run)) as con:
        for kind, message in (("dataset.done", "alpha: running → done"), ("dataset.running", "alpha: draining → running")):
            con.execute(
                "INSERT INTO events (at, kind, subject, severity, message, who, details)"
                " VALUES (?, ?, 'dataset:alpha', 'info', ?, 'supervisor', '{}')",
                (NOW + 2, kind, message),
            )
    clock.now += 3
    assert [e["words"] for e in live.answer("demo", first.seq, "15m").events] == ["alpha done"]


def test_tabs_that_ask_in_the_same_second_share_one_answer(live: LiveRuns, clock: Clock) -> None:
    first = live.answer("demo", 0, "15m")
    assert live.answer("demo", 0, "15m") is first
    seq = first.seq
    assert live.answer("demo", seq, "15m") is live.answer("demo", seq // 5 * 5 + 4, "15m")
    clock.now += 1
    assert live.answer("demo", 0, "15m") is not first


@pytest.mark.parametrize("name", ["", ".", "..", "../runs/demo", "demo/", "/", "demo\x00", "Demo", "other"])
def test_only_the_name_of_a_run_finds_it(name: str, live: LiveRuns) -> None:
    with pytest.raises(LiveError):
        live.answer(name, 0, "15m")


def test_a_dead_supervisor_leaves_the_past_and_nothing_of_now(live: LiveRuns, run: RunDir, clock: Clock) -> None:
    with closing(open_state(run)):
        clock.now += 12
    other = LiveRuns(lambda: run.root.parent, clock)
    answer = other.answer("demo", 0, "15m")  # the lock is held, the heartbeat is 12 s old
    assert answer.trouble is not None
    assert "not answering: no sign of life since 12 s" in answer.trouble
    assert figure(answer, "speed") == ("–", "tok/s", "not measured now")
    assert answer.gpus == []
    assert answer.charts is not None
    assert answer.charts.throughput.at


@pytest.mark.parametrize("phase", list(RunPhase))
def test_every_phase_has_a_sentence(phase: RunPhase, live: LiveRuns, run: RunDir) -> None:
    beat(run, job_status(phase=phase), NOW)
    assert live.answer("demo", 0, "all").sentence.endswith(".")


def test_a_run_that_was_never_started_says_so(tmp_path: Path) -> None:
    made = make_run(tmp_path)
    answer = LiveRuns(lambda: made.root.parent).answer("demo", 0, "15m")
    assert answer.sentence == "Created and not started yet: 2 datasets."
    assert answer.charts is None
    assert figure(answer, "samples") == ("0", "of ≤ 8", "0 rejected")


def test_a_poll_costs_a_few_milliseconds_with_two_weeks_behind_it(live: LiveRuns, run: RunDir, clock: Clock) -> None:
    with closing(open_state(run)) as con:
        con.execute("BEGIN")
        for table, key in (
            ("engine_samples", "0"),
            ("engine_samples", "1"),
            ("driver_samples", "run"),
            ("gpu_samples", "GPU-1"),
        ):
            for resolution_s in (60, 3600):
                con.executemany(
                    f"INSERT INTO {table} (resolution_s, key, at, samples) VALUES (?, ?, ?, ?)",
                    [
                        (resolution_s, key, at, resolution_s)
                        for at in range(BEGAN // 3600 * 3600 - 14 * 86_400, BEGAN // 3600 * 3600, resolution_s)
                    ],
                )
        con.execute("COMMIT")
    answer = live.answer("demo", 0, "all")
    assert answer.charts is not None
    assert len(answer.charts.throughput.at) <= 600
    began, polls = time.process_time(), 40
    for i in range(polls):
        clock.now = NOW + (i % 2)  # another second each time, nothing is shared
        answer = live.answer("demo", answer.seq, "all")
    assert (time.process_time() - began) / polls < 0.015  # about 0.003 where nothing else runs


def test_a_second_that_not_all_replicas_have_told_yet_waits_for_the_next_answer(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    late = int(NOW)
    with closing(open_state(run)) as con:
        telemetry_store.create_tables(con)
        for at in range(late - 3, late):
            telemetry_store.write(con, telemetry(at))
        telemetry_store.write(con, [EngineSample(key="0", at=late, decode_tokens_per_s=100)])
        names = ("decode_tokens_per_s",)
        points = read_points(con, "engine_samples", ("0", "1"), names, start=late - 3, now=NOW, step_s=1)

    assert points.at == (late - 3, late - 2, late - 1)
    assert points.values["decode_tokens_per_s"] == (150.0, 150.0, 150.0)


def test_a_run_whose_date_of_creation_is_no_date_is_shown_without_its_age(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    text = run.config.read_text()
    lines = ['created_at = "yesterday"' if line.startswith("created_at") else line for line in text.splitlines()]
    run.config.write_text("\n".join(lines))
    assert '"yesterday"' in run.config.read_text()
    assert LiveRuns(lambda: run.root.parent, Clock()).pulse(run.name).age is None
