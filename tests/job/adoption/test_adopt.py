"""Outputs of other scripts become finished samples: matched, each once, with a report of all that did not."""

from __future__ import annotations

import gzip
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from backend.__main__ import main
from backend.control.create import create
from backend.heartbeat import SupervisorState, supervisor_pid, supervisor_state
from backend.job.adoption.account import Account, Fate
from backend.job.adoption.adopt import AdoptOptions, _maintenance, adopt
from backend.job.adoption.output_files import AdoptError
from backend.job.adoption.outputs import Fields
from backend.job.ledger import DatasetTotals, Ledger
from backend.outcomes import outcome_of
from backend.records import Outcome, Row
from backend.report.events import last_event
from backend.report.export.options import Format
from backend.rows import row_from_record
from backend.run_dir import RunDir
from tests.job.adoption.other_scripts import batch_line, completion, write_lines
from tests.job.ledger_use import files_no_longer_than
from tests.made_run import CONFIG, holding_lock, make_run, write_config
from tests.report.export.handed_over import export_to, read_rows


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """Dataset alpha has five prompts: ids alpha-0 to alpha-4, texts "alpha: say 0" and so on."""
    return make_run(tmp_path)


def take(run: RunDir, *files: Path, dataset: str = "alpha", **options: Any) -> Account:
    return adopt(run, dataset, files, AdoptOptions(**options), who="me")


def fates(account: Account) -> dict[str, int]:
    return {fate.value: count for fate, count in account.counts.items() if count}


def rows_of(run: RunDir, dataset: str = "alpha") -> dict[str, Row]:
    import pyarrow.parquet as pq

    found = {}
    for path in sorted(run.shards.glob(f"{dataset}/*.parquet")):
        for record in pq.read_table(path).to_pylist():
            found[record["sample_id"]] = row_from_record(record)
    return found


async def totals(run: RunDir, dataset: str = "alpha") -> DatasetTotals:
    ledger = Ledger.open(run)
    try:
        return ledger.totals(dataset)
    finally:
        await ledger.close()


# -- five files, each broken in another way ------------------------------------------------------------------------------


def test_a_file_whose_script_was_killed_ends_within_a_line(run: RunDir, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "out.jsonl", *({"prompt": f"alpha: say {n}", "response": f"said {n}"} for n in (3, 0, 2)))
    path.write_bytes(path.read_bytes()[:-9])
    account = take(run, path)
    assert fates(account) == {"adopted": 2, "broken": 1}
    [finding] = account.findings
    assert finding.place == f"{path}:3"
    assert "the file ends within this line" in finding.words
    assert {key: row.answer for key, row in rows_of(run).items()} == {"alpha-0": "said 0", "alpha-3": "said 3"}


def test_batch_output_in_any_order_with_failed_requests_and_a_second_file_of_errors(run: RunDir, tmp_path: Path) -> None:
    failed = {"id": "b", "custom_id": "alpha-1", "response": {"status_code": 500, "body": {"error": "oh"}}, "error": None}
    expired = {"id": "b", "custom_id": "alpha-2", "response": None, "error": {"code": "batch_expired", "message": "too late"}}
    cut = batch_line("alpha-0", "zero", finish_reason="length")
    output = write_lines(tmp_path / "out.jsonl", batch_line("alpha-4", "four", tokens=3), failed, cut)
    errors = write_lines(tmp_path / "errors.jsonl", expired, {"id": "alpha-3", "error": "connection reset"})
    account = take(run, output, errors)
    assert fates(account) == {"adopted": 2, "error": 3}
    assert [finding.place for finding in account.findings] == [f"{output}:2", f"{errors}:1", f"{errors}:2"]
    assert "HTTP 500" in account.findings[0].words
    assert "too late" in account.findings[1].words
    row = rows_of(run)["alpha-4"]
    assert (row.source, row.model, row.completion_tokens, row.prompt_tokens) == ("adopted", "their-model", 3, 5)
    assert (row.finish_reason, row.tokens_estimated, row.started_at) == ("stop", False, 1_770_000_000)
    assert outcome_of(rows_of(run)["alpha-0"]) is Outcome.TRUNCATED


def test_duplicates_strangers_and_answers_that_are_none(run: RunDir, tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "out.jsonl",
        {"id": "alpha-0", "response": ""},
        {"id": "alpha-0", "response": "<think>hm, nothing more"},
        {"id": "alpha-0", "response": "the first"},
        {"id": "alpha-0", "response": "the second"},
        {"id": "gamma-7", "response": "whose?"},
        {"id": "alpha-1", "prompt": "another dataset's", "response": "of an equal id by chance"},
        {"response": "no id and no prompt"},
    )
    account = take(run, path)
    assert fates(account) == {"adopted": 1, "empty": 2, "duplicate": 1, "unmatched": 3}
    assert rows_of(run)["alpha-0"].answer == "the first"
    words = {finding.place: finding.words for finding in account.findings}
    assert words[f"{path}:5"] == "no prompt has the id 'gamma-7'"
    assert words[f"{path}:6"] == "no prompt has the id 'alpha-1' with its text, or its text"
    assert words[f"{path}:7"] == "it tells neither an id nor a prompt"


def test_a_conversation_file_with_lines_that_are_no_conversations(run: RunDir, tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "out.jsonl",
        {"conversations": [{"from": "human", "value": "alpha: say 1"}, {"from": "gpt", "value": "one"}]},
        {"messages": [
            {"role": "user", "content": [{"type": "text", "text": "alpha: say 2"}]},
            {"role": "assistant", "content": "two", "reasoning_content": "hm"},
        ]},
        {"messages": [{"role": "user", "content": "alpha: say 3"}]},
        '{"messages": NaN}',
        "[1, 2]",
        '{"id": 1} {"id": 2}',
        {"id": "alpha-4", "choices": []},
        {"id": "alpha-4", "response": ["a", "b"]},
        {"something": "else"},
    )  # fmt: skip
    account = take(run, path)
    assert fates(account) == {"adopted": 2, "broken": 7}
    found = rows_of(run)
    assert (found["alpha-1"].answer, found["alpha-1"].reasoning) == ("one", None)
    assert (found["alpha-2"].answer, found["alpha-2"].reasoning) == ("two", "hm")
    assert json.loads(found["alpha-2"].messages) == {"messages": [{"role": "user", "content": "alpha: say 2"}]}


def test_a_packed_file_with_bytes_that_are_no_text(run: RunDir, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl.gz"
    good = json.dumps({"text": "alpha: say 0", "response": "zero 𝔘\u2028"}, ensure_ascii=False).encode()
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + good + b"\n\n\xff\xfe\x00\n" + good.replace(b"say 0", b"say 4")))
    account = take(run, path)
    assert fates(account) == {"adopted": 2, "broken": 1}
    assert [finding.place for finding in account.findings] == [f"{path}:3"]
    assert rows_of(run)["alpha-4"].answer == "zero 𝔘\u2028"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(AdoptError, match=r"damaged or not gzip.*zcat"):
        take(run, path)


# -- what follows --------------------------------------------------------------------------------------------------------


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "out.jsonl", *(batch_line(f"alpha-{n}", f"said {n}") for n in range(3)))


async def test_the_same_files_again_change_nothing(run: RunDir, outputs: Path) -> None:
    import asyncio

    assert fates(await asyncio.to_thread(take, run, outputs)) == {"adopted": 3}
    before = await totals(run), rows_of(run)
    assert fates(await asyncio.to_thread(take, run, outputs)) == {"finished": 3}
    assert (await totals(run), rows_of(run)) == before
    assert before[0] == DatasetTotals(samples=3, completion_tokens=21, prompt_tokens=15)


async def test_what_a_redo_wants_made_again_is_not_adopted_again(run: RunDir, outputs: Path) -> None:
    import asyncio

    await asyncio.to_thread(take, run, outputs)
    ledger = Ledger.open(run)
    await ledger.supersede("alpha", list(ledger.outcome_keys("alpha", [Outcome.OK]))[:1], "redo")
    await ledger.close()
    assert fates(await asyncio.to_thread(take, run, outputs)) == {"replaced": 1, "finished": 2}


def test_meanwhile_the_lock_names_the_process_that_adopts_and_no_former_supervisor(run: RunDir) -> None:
    run.lock.write_text("1")
    os.utime(run.lock, (1000, 1000))
    with _maintenance(run):
        assert supervisor_pid(run) == os.getpid()
        assert supervisor_state(run, time.time()) is SupervisorState.NOT_ANSWERING


def test_while_a_supervisor_works_it_is_refused_with_what_to_do(run: RunDir, outputs: Path) -> None:
    with holding_lock(run, time.time()), pytest.raises(AdoptError, match=r"Stop it first \(python -m backend stop"):
        take(run, outputs)
    assert not run.ledger.exists()


def test_a_run_that_was_never_started_still_never_was(run: RunDir, outputs: Path) -> None:
    take(run, outputs)
    assert supervisor_state(run, time.time()) is SupervisorState.NEVER_STARTED


def test_a_dry_run_tells_and_changes_nothing(run: RunDir, outputs: Path) -> None:
    account = take(run, outputs, dry_run=True)
    assert (fates(account), account.turns, account.samples_after) == ({"adopted": 3}, 3, 0)
    assert rows_of(run) == {}


def test_a_disk_that_refuses_is_said_in_words_and_the_same_command_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.job.adoption.adopt.BATCH_TURNS", 50)
    count = 400
    run = make_own_run(tmp_path / "a", [{"id": f"q{n}", "prompt": f"ask {n}"} for n in range(count)])
    path = write_lines(
        tmp_path / "out.jsonl", *(batch_line(f"q{n}", random.Random(n).randbytes(500).hex()) for n in range(count))
    )
    with files_no_longer_than(700_000), pytest.raises(AdoptError, match=r"cannot be written.*the same command goes on"):
        take(run, path, dataset="own")
    assert "never retrieved" not in caplog.text
    found = fates(take(run, path, dataset="own"))
    assert sum(found.values()) == count
    assert 0 < found["finished"] < count
    assert len(rows_of(run, "own")) == count


def test_the_event_tells_where_the_samples_came_from(run: RunDir, outputs: Path) -> None:
    take(run, outputs)
    event = last_event(run, "dataset.adopted", "dataset:alpha")
    assert event is not None
    assert (event.message, event.who) == ("3 samples that another script made were adopted.", "me")


def test_tokens_are_counted_by_the_models_tokenizer_else_estimated_and_marked(
    run: RunDir, tmp_path: Path, word_tokenizer: Path
) -> None:
    path = write_lines(tmp_path / "out.jsonl", {"id": "alpha-0", "response": "one two one two"})
    other = write_lines(tmp_path / "other.jsonl", {"id": "alpha-1", "response": "one two one two"})
    take(run, path, tokenizer=word_tokenizer)
    account = take(run, other)
    counted, estimated = rows_of(run)["alpha-0"], rows_of(run)["alpha-1"]
    assert (counted.completion_tokens, counted.tokens_estimated) == (4, False)
    assert (estimated.completion_tokens, estimated.tokens_estimated, account.estimated) == (4, True, 1)


@pytest.mark.parametrize(
    ("told", "tokens", "assumed", "kept"),
    [
        ("stop", 9, None, "stop"), ("max_tokens", 9, None, "length"), ("tool_use", 9, None, "tool_calls"),
        (None, 9, None, "unknown"), (None, 50, None, "length"), (None, 9, "stop", "stop"), ("whatever", 9, None, "unknown"),
    ],
)  # fmt: skip
def test_how_an_answer_ended_is_told_or_shown_by_the_cap_or_not_known(
    tmp_path: Path, told: str | None, tokens: int, assumed: str | None, kept: str
) -> None:
    text = CONFIG.replace("concurrency = 8", "concurrency = 8\nmax_new_tokens = 50")
    run = create(write_config(tmp_path, text=text), tmp_path / "runs")
    output = {"id": "alpha-0", "response": "x", "finish_reason": told, "usage": {"completion_tokens": tokens}}
    account = take(run, write_lines(tmp_path / "out.jsonl", output), finish_reason=assumed)
    assert rows_of(run)["alpha-0"].finish_reason == kept
    assert account.unknown_ends == (kept == "unknown")


def test_a_request_that_was_aborted_is_an_error(run: RunDir, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "out.jsonl", completion("half an answ", finish_reason="abort") | {"custom_id": "alpha-0"})
    assert fates(take(run, path)) == {"error": 1}


def test_tool_calls_and_the_files_own_names_of_fields(run: RunDir, tmp_path: Path) -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    called = completion("", finish_reason="tool_calls", tool_calls=calls) | {"custom_id": "alpha-0"}
    own = {"key": "alpha-1", "q": "alpha: say 1", "answer": "the reference", "made": "the answer"}
    take(run, write_lines(tmp_path / "calls.jsonl", called))
    take(run, write_lines(tmp_path / "own.jsonl", own), fields=Fields("key", "q", "made"))
    found = rows_of(run)
    assert json.loads(str(found["alpha-0"].tool_calls)) == calls
    assert outcome_of(found["alpha-0"]) is Outcome.OK
    assert found["alpha-1"].answer == "the answer"


def make_own_run(folder: Path, lines: list[dict[str, Any]], settings: str = "") -> RunDir:
    (folder / "prompts").mkdir(parents=True)
    write_lines(folder / "prompts/own.jsonl", *lines)
    text = CONFIG[: CONFIG.index("[[datasets]]")].format(name="own")
    (folder / "own.toml").write_text(f'{text}[[datasets]]\nname = "own"\npath = "prompts/own.jsonl"\n{settings}')
    return create(folder / "own.toml", folder / "runs")


def test_equal_prompts_get_the_answers_in_their_order(tmp_path: Path) -> None:
    run = make_own_run(tmp_path / "a", [{"prompt": "same"}, {"prompt": "other"}, {"prompt": "same"}])
    path = write_lines(tmp_path / "out.jsonl", *({"prompt": "same", "response": text} for text in ("one", "two", "three")))
    account = take(run, path, dataset="own")
    assert fates(account) == {"adopted": 2, "duplicate": 1}
    assert [row.answer for _, row in sorted(rows_of(run, "own").items())] == ["one", "two"]


def test_the_datasets_system_prompt_has_no_part_in_matching(tmp_path: Path) -> None:
    run = make_own_run(tmp_path / "a", [{"prompt": "q1"}, {"prompt": "q2"}], 'system_prompt = "Be kind."')
    system, question = {"role": "system", "content": "Be kind."}, {"role": "user", "content": "q1"}
    path = write_lines(
        tmp_path / "out.jsonl", {"messages": [system, question], "response": "1"}, {"prompt": "q2", "response": "2"}
    )
    assert fates(take(run, path, dataset="own")) == {"adopted": 2}
    asked = [json.loads(row.messages)["messages"][0] for row in rows_of(run, "own").values()]
    assert asked == [system, system]


def test_every_turn_of_a_conversation_is_adopted_until_the_script_went_another_way(tmp_path: Path) -> None:
    said = ["u0", "a0", "u1", "a1", "u2", "a2"]

    def turns(*texts: str) -> list[dict[str, str]]:
        return [{"role": "assistant" if i % 2 else "user", "content": text} for i, text in enumerate(texts)]

    run = make_own_run(tmp_path / "a", [{"id": "c", "messages": turns(*said)}], 'turns = "all"')
    path = write_lines(tmp_path / "out.jsonl", {"id": "c", "messages": turns("u0", "b0", "u1", "b1", "something else", "b2")})
    account = take(run, path, dataset="own")
    assert (fates(account), account.turns) == ({"adopted": 1}, 2)
    found = rows_of(run, "own")
    assert {key: row.answer for key, row in found.items()} == {"c/t0": "b0", "c/t1": "b1"}
    assert json.loads(found["c/t1"].messages)["messages"] == turns("u0", "b0", "u1")


def test_adopted_samples_are_exported_like_others(run: RunDir, outputs: Path, tmp_path: Path) -> None:
    take(run, outputs)
    export_to(run, tmp_path / "exported", Format.MESSAGES)
    assert [row["messages"][-1]["content"] for row in read_rows(tmp_path / "exported")] == ["said 0", "said 1", "said 2"]


@pytest.fixture
def shell(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_RUNS", str(run.root.parent))


@pytest.mark.usefixtures("shell")
def test_the_command_tells_what_was_adopted_and_what_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        batch_line("alpha-0", "zero"),
        *({"id": f"x{n}", "response": "?"} for n in range(7)),
        {"id": "alpha-1", "response": "1"},
    ]
    path, report = write_lines(tmp_path / "out.jsonl", *lines), tmp_path / "report.jsonl"
    assert main(["adopt", "demo", "alpha", str(path), "--report", str(report)]) == 0
    told = capsys.readouterr().out
    assert "Adopted 2 samples (8 completion tokens) of 9 lines. alpha has 2 finished samples now." in told
    assert "The tokens of 1 are estimated" in told
    assert "How 1 ended is not known" in told
    assert f"7 without a prompt in this dataset\n    {path}:2: no prompt has the id 'x0'" in told
    assert "and 2 more\n" in told
    assert [json.loads(line)["fate"] for line in report.read_text().splitlines()] == ["unmatched"] * 7
    assert main(["adopt", "demo", "alpha", str(path), "--report", str(report)]) == 1
    assert "is there already" in capsys.readouterr().err


@pytest.mark.usefixtures("shell")
def test_files_of_another_dataset_are_said_to_be_that(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_lines(tmp_path / "out.jsonl", {"id": "nobody", "response": "?"})
    assert main(["adopt", "demo", "alpha", str(path)]) == 1
    assert "No line of these files belongs to alpha" in capsys.readouterr().err
    assert main(["adopt", "demo", "alhpa", str(path)]) == 1
    assert "Did you mean alpha" in capsys.readouterr().err
    assert main(["adopt", "demo", "alpha", str(tmp_path / "missing.jsonl")]) == 1
    assert "missing.jsonl does not exist" in capsys.readouterr().err


def test_each_fate_has_its_words() -> None:
    from backend.job.adoption.account import WORDS

    assert set(WORDS) == set(Fate)
