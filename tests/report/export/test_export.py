"""An export: the samples that were asked for, each once, as they are in the run; and whole or not at all."""

from __future__ import annotations

import json
import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from backend.records import Facts, Outcome
from backend.report.export.options import ExportError, Flagged, Format
from backend.report.export.work import is_held_out
from backend.run_dir import RunDir, open_state
from tests.finished_samples import replace_row
from tests.job.ledger_use import files_no_longer_than
from tests.made_run import make_run
from tests.report.export.handed_over import (
    CALLS,
    TOOLS,
    export_to,
    keep_open,
    prompt,
    read_rows,
    sample,
    seal,
    without_nulls,
)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return make_run(tmp_path)


def kept_calls() -> list[dict[str, Any]]:
    return [{name: value for name, value in call.items() if name != "index"} for call in CALLS]


@pytest.fixture
def told(run: RunDir) -> RunDir:
    """Three sealed samples of alpha and two open ones: plain, with reasoning, with tools."""
    seal(run, [sample(0), sample(1, reasoning="hm, 1"), sample(2)])
    called = {"answer": "", "tool_calls": json.dumps(CALLS), "finish_reason": "tool_calls"}
    keep_open(run, [sample(3, messages=prompt("say 3", tools=TOOLS), **called), sample(4)])
    return run


CHAT_ROWS = [
    {"id": "alpha-0", "said": [("user", "say 0"), ("assistant", "it is 0")]},
    {"id": "alpha-1", "said": [("user", "say 1"), ("assistant", "it is 1")]},
    {"id": "alpha-2", "said": [("user", "say 2"), ("assistant", "it is 2")]},
    {"id": "alpha-3", "said": [("user", "say 3"), ("assistant", "")]},
    {"id": "alpha-4", "said": [("user", "say 4"), ("assistant", "it is 4")]},
]


def as_chat(form: Format) -> list[dict[str, Any]]:
    """What an export of `told` holds."""
    who = {"user": "human", "assistant": "gpt"} if form is Format.SHAREGPT else {"user": "user", "assistant": "assistant"}
    role, content = ("from", "value") if form is Format.SHAREGPT else ("role", "content")
    field = "messages" if form is Format.MESSAGES else "conversations"
    rows: list[dict[str, Any]] = []
    for row in CHAT_ROWS:
        rows.append({"id": row["id"], field: [{role: who[one], content: text} for one, text in row["said"]]})
    rows[1][field][1]["reasoning_content"] = "hm, 1"
    rows[3][field][1]["tool_calls"] = kept_calls()
    return rows


@pytest.mark.parametrize("parquet", [False, True], ids=["jsonl", "parquet"])
@pytest.mark.parametrize("form", [Format.MESSAGES, Format.CONVERSATIONS, Format.SHAREGPT])
def test_what_is_read_back_equals_the_rows(told: RunDir, tmp_path: Path, form: Format, parquet: bool) -> None:
    result = export_to(told, tmp_path / "out", form, parquet=parquet)
    rows = [without_nulls(row) for row in read_rows(tmp_path / "out")]
    assert json.loads(rows[3].pop("tools")) == TOOLS
    assert rows == as_chat(form)
    assert (result.samples, result.holdout, result.left_out) == (5, 0, {})


@pytest.mark.parametrize("parquet", [False, True], ids=["jsonl", "parquet"])
def test_token_ids_are_those_of_the_server_with_a_mask_over_what_the_model_made(
    run: RunDir, tmp_path: Path, parquet: bool
) -> None:
    seal(run, [sample(0), sample(1, output_ids=None)])
    keep_open(run, [sample(2)])
    result = export_to(run, tmp_path / "out", Format.TOKEN_IDS, parquet=parquet)
    named = {"dataset": "alpha", "outcome": "ok", "loss_mask": [0, 0, 1, 1, 1]}
    assert read_rows(tmp_path / "out") == [
        {"id": "alpha-0", "input_ids": [1, 0, 7, 0, 2], **named},
        {"id": "alpha-2", "input_ids": [1, 2, 7, 2, 2], **named},
    ]
    assert result.left_out == {"no token ids: an API or another script made it": 1}


def test_text_is_what_the_ids_decode_to(run: RunDir, tmp_path: Path, word_tokenizer: Path) -> None:
    seal(run, [sample(0, prompt_token_ids=(1, 3), output_ids=(4, 2))])
    export_to(run, tmp_path / "out", Format.TEXT, tokenizer=word_tokenizer)
    assert read_rows(tmp_path / "out") == [{"id": "alpha-0", "dataset": "alpha", "outcome": "ok", "text": "<s> one two </s>"}]


def test_text_without_a_tokenizer_is_refused_with_what_to_do(told: RunDir, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"needs the model's tokenizer\.json.*--tokenizer"):
        export_to(told, tmp_path / "out", Format.TEXT)
    assert not (tmp_path / "out").exists()


def test_only_the_outcomes_asked_for_are_written_and_the_others_are_counted(run: RunDir, tmp_path: Path) -> None:
    empty = sample(1, answer="", facts=Facts(answer_tokens=0))
    seal(run, [sample(0), empty, sample(2, finish_reason="length"), sample(3, finish_reason="length")])
    result = export_to(run, tmp_path / "out", outcomes=(Outcome.OK,))
    assert [row["id"] for row in read_rows(tmp_path / "out")] == ["alpha-0"]
    assert result.left_out == {"empty": 1, "truncated": 2}
    card = (tmp_path / "out/README.md").read_text()
    assert "| truncated | 2 | cut by the cap on new tokens |" in card
    assert "| empty | 1 | no answer |" in card


def test_equal_conversations_are_written_once(run: RunDir, tmp_path: Path) -> None:
    same = {"messages": prompt("2+2?"), "answer": "4"}
    seal(run, [sample(0, **same), sample(1, **same), sample(2, messages=prompt("2+2?"), answer="four")])
    result = export_to(run, tmp_path / "out")
    assert [row["id"] for row in read_rows(tmp_path / "out")] == ["alpha-0", "alpha-2"]
    assert list(result.left_out.values()) == [1]
    assert export_to(run, tmp_path / "all", keep_duplicates=True).samples == 3


def test_rows_that_a_redo_replaced_are_not_exported(run: RunDir, tmp_path: Path) -> None:
    seal(run, [sample(0), sample(1)])
    replace_row(run, sample(0))
    keep_open(run, [sample(0, attempt=2, answer="again")])
    export_to(run, tmp_path / "out")
    assert [row["messages"][1]["content"] for row in read_rows(tmp_path / "out")] == ["again", "it is 1"]


def flag(run: RunDir, number: int) -> None:
    with closing(open_state(run)) as con:
        con.execute("INSERT INTO flags VALUES ('alpha', ?, 0, 1, 1.0, 'me', 'odd')", (f"alpha-{number}",))


@pytest.mark.parametrize(
    ("flagged", "ids"), [(Flagged.LEAVE_OUT, [0, 2]), (Flagged.KEEP, [0, 1, 2]), (Flagged.ONLY, [1])], ids=str
)
def test_flagged_samples_are_left_out_unless_they_are_asked_for(
    run: RunDir, tmp_path: Path, flagged: Flagged, ids: list[int]
) -> None:
    seal(run, [sample(number) for number in range(3)])
    flag(run, 1)
    export_to(run, tmp_path / "out", flagged=flagged)
    assert [row["id"] for row in read_rows(tmp_path / "out")] == [f"alpha-{number}" for number in ids]


def test_answers_to_the_same_prompt_fall_on_the_same_side_in_every_export(run: RunDir, tmp_path: Path) -> None:
    seal(run, [sample(n, messages=prompt(f"q{n % 100}")) for n in range(400)])
    small, large = export_to(run, tmp_path / "small", holdout=0.1), export_to(run, tmp_path / "large", holdout=0.3)
    sides = {}
    for name in ("small", "large"):
        held, trained = (
            {
                json.loads(line)["messages"][0]["content"]
                for line in (tmp_path / name / f"{split}.jsonl").read_bytes().splitlines()
            }
            for split in ("holdout", "train")
        )
        assert not held & trained
        sides[name] = held
    assert sides["small"] < sides["large"]
    assert (small.holdout, large.holdout) == (4 * len(sides["small"]), 4 * len(sides["large"]))


def test_the_held_out_share_is_what_was_asked_for() -> None:
    held = sum(is_held_out(str(number).encode(), 0.02) for number in range(100_000))
    assert 1_850 < held < 2_150


def test_all_turns_of_a_conversation_fall_on_one_side(tmp_path: Path) -> None:
    from backend.report.export.forms import read_asked, sampled_from

    first = {"role": "user", "content": "hello"}
    turn_0 = json.dumps({"messages": [first]})
    turn_1 = json.dumps({"messages": [first, {"role": "assistant", "content": "hi"}, {"role": "user", "content": "and?"}]})
    assert sampled_from(read_asked(turn_0), every_turn=True) == sampled_from(read_asked(turn_1), every_turn=True)
    assert sampled_from(read_asked(turn_0), every_turn=False) != sampled_from(read_asked(turn_1), every_turn=False)


def test_samples_of_several_datasets_have_ids_that_tell_them_apart(run: RunDir, tmp_path: Path) -> None:
    seal(run, [sample(0), sample(0, dataset="beta", sample_id="alpha-0", answer="other")])
    export_to(run, tmp_path / "both", datasets=())
    assert [row["id"] for row in read_rows(tmp_path / "both")] == ["alpha/alpha-0", "beta/alpha-0"]
    export_to(run, tmp_path / "one", datasets=("beta",))
    assert [row["id"] for row in read_rows(tmp_path / "one")] == ["alpha-0"]


def test_a_prompt_with_pictures_is_left_out_in_words(run: RunDir, tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    picture = [{"type": "image_url", "image_url": {"url": "x"}}]
    texts = [
        sample(n, messages=json.dumps({"messages": [{"role": "user", "content": c}]})) for n, c in enumerate((parts, picture))
    ]
    seal(run, texts)
    result = export_to(run, tmp_path / "out")
    assert [row["messages"][0]["content"] for row in read_rows(tmp_path / "out")] == ["ab"]
    assert result.left_out == {"the prompt holds more than text, such as pictures": 1}


@pytest.mark.parametrize("harm", ["cut", "edited", "removed", "junk"])
def test_a_shard_that_is_not_what_was_sealed_is_passed_over_in_words(run: RunDir, tmp_path: Path, harm: str) -> None:
    seal(run, [sample(number) for number in range(4)], shard_rows=2)
    path = run.shard("alpha", 2)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    whole = path.read_bytes()
    damaged = {"cut": whole[:-9], "edited": bytes(content), "removed": None, "junk": b"x" * len(whole)}[harm]
    path.unlink()
    if damaged is not None:
        path.write_bytes(damaged)
    (run.shards / "alpha/00000009.parquet").write_bytes(b"nobody sealed this")
    result = export_to(run, tmp_path / "out")
    assert [row["id"] for row in read_rows(tmp_path / "out")] == ["alpha-0", "alpha-1"]
    [words] = result.skipped
    assert "shards/alpha/00000002.parquet" in words
    assert words in (tmp_path / "out/README.md").read_text()


def test_what_lies_there_is_not_overwritten(told: RunDir, tmp_path: Path) -> None:
    export_to(told, tmp_path / "out")
    before = (tmp_path / "out/train.jsonl").read_bytes()
    with pytest.raises(ExportError, match="--force"):
        export_to(told, tmp_path / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("years of work")
    with pytest.raises(ExportError, match="more than an export"):
        export_to(told, tmp_path / "mine", force=True)
    export_to(told, tmp_path / "out", Format.SHAREGPT, force=True)
    assert (tmp_path / "out/train.jsonl").read_bytes() != before
    assert (tmp_path / "mine/thesis.tex").read_text() == "years of work"
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


@pytest.mark.parametrize("parquet", [False, True], ids=["jsonl", "parquet"])
def test_a_full_disk_is_said_in_words_and_nothing_is_left(run: RunDir, tmp_path: Path, parquet: bool) -> None:
    seal(run, [sample(number, answer=random.Random(number).randbytes(1000).hex()) for number in range(200)])
    (tmp_path / "there").mkdir()
    with files_no_longer_than(40_000), pytest.raises(ExportError, match=r"disk of .* is full"):
        export_to(run, tmp_path / "there/out", parquet=parquet)
    assert list((tmp_path / "there").iterdir()) == []


def test_an_export_of_nothing_is_refused_with_what_there_is(run: RunDir, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="no finished sample of alpha yet"):
        export_to(run, tmp_path / "out")
    seal(run, [sample(0, finish_reason="length")])
    with pytest.raises(ExportError, match="1 truncated"):
        export_to(run, tmp_path / "out", outcomes=(Outcome.OK,))
    with pytest.raises(ExportError, match="Did you mean alpha"):
        export_to(run, tmp_path / "out", datasets=("alhpa",))
    assert not (tmp_path / "out").exists()


@pytest.fixture
def seldom(run: RunDir) -> RunDir:
    """Tools, calls and reasoning turn up after a megabyte of plain samples."""
    plain = [sample(number, answer=f"{number} " + "word " * 400) for number in range(700)]
    called = sample(700, messages=prompt("add", tools=TOOLS), tool_calls=json.dumps(CALLS), reasoning="hm")
    seal(run, [*plain, called])
    return run


def test_fields_that_few_samples_have_stand_where_readers_look_for_them(seldom: RunDir, tmp_path: Path) -> None:
    export_to(seldom, tmp_path / "out", Format.CONVERSATIONS)
    lines = (tmp_path / "out/train.jsonl").read_text().splitlines()
    assert "tools" in json.loads(lines[0])
    assert len({json.loads(line)["id"] for line in lines}) == 701


def test_an_export_of_a_trainer_has_no_further_columns(seldom: RunDir, tmp_path: Path) -> None:
    """SpecForge hands further columns to the chat template, and speculators needs text or nothing in `tools`."""
    export_to(seldom, tmp_path / "out", Format.CONVERSATIONS)
    rows = read_rows(tmp_path / "out")
    assert {key for row in rows for key in row} == {"id", "conversations", "tools"}
    assert {type(row["tools"]) for row in rows if "tools" in row} == {str}
    assert {key for row in rows for turn in row["conversations"] for key in turn} == {
        "role", "content", "reasoning_content", "tool_calls",
    }  # fmt: skip
