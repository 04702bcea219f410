"""Exports as `datasets` reads them: by their folder, through the card, and as plain files, as trainers do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backend.report.export.options import Format
from backend.run_dir import RunDir
from tests.made_run import make_run
from tests.report.export.handed_over import CALLS, TOOLS, export_to, prompt, read_rows, sample, seal, without_nulls

datasets = pytest.importorskip("datasets")
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """Tools, calls and reasoning turn up late, and not in every sample."""
    run = make_run(tmp_path)
    rows = [sample(number, answer=f"{number} " + "word " * 300) for number in range(300)]
    rows[150] = sample(150, reasoning="hm\n\n", messages=prompt("Ünï\u2028code 𝔘"))
    rows[298] = sample(298, messages=prompt("add", tools=TOOLS), tool_calls=json.dumps(CALLS), finish_reason="tool_calls")
    seal(run, rows)
    return run


def loaded(folder: Path, **how: Any) -> dict[str, list[dict[str, Any]]]:
    found = datasets.load_dataset(str(folder), **how)
    return {split: [without_nulls(row) for row in found[split]] for split in found}


@pytest.mark.parametrize("parquet", [False, True], ids=["jsonl", "parquet"])
@pytest.mark.parametrize("form", [Format.MESSAGES, Format.CONVERSATIONS, Format.SHAREGPT, Format.TOKEN_IDS])
def test_the_folder_loads_with_its_splits_and_equals_the_rows(run: RunDir, tmp_path: Path, form: Format, parquet: bool) -> None:
    result = export_to(run, tmp_path / "out", form, parquet=parquet, holdout=0.2)
    splits = loaded(tmp_path / "out")
    assert {split: len(rows) for split, rows in splits.items()} == {
        "train": 300 - result.holdout,
        "holdout": result.holdout,
    }
    rows = sorted(splits["train"] + splits["holdout"], key=lambda row: str(row["id"]))
    assert rows == [without_nulls(row) for row in read_rows(tmp_path / "out")]


def test_a_plain_file_loads_although_its_first_chunk_has_none_of_the_seldom_fields(run: RunDir, tmp_path: Path) -> None:
    export_to(run, tmp_path / "out", Format.CONVERSATIONS)
    file = str(tmp_path / "out/train.jsonl")
    rows = [without_nulls(row) for row in datasets.load_dataset("json", data_files=file, split="train", chunksize=100_000)]
    assert sorted(rows, key=lambda row: str(row["id"])) == read_rows(tmp_path / "out")
