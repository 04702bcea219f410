"""The form for a new run: filled in, corrected, created; nothing typed is lost."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from backend import config
from backend.run_dir import RunDir
from tests.made_run import make_run
from tests.pages.shown import open_page, words


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADWAY_RUNS", str(tmp_path / "runs"))
    lines = [json.dumps({"id": f"p{i}", "prompt": f"Say {i} & <b>nothing</b> else"}) for i in range(7)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.fixture
def form(place: Path) -> AppTest:
    return open_page("new_run.py")


def fill(at: AppTest, **values: object) -> AppTest:
    for name, value in values.items():
        widget = next(w for w in (*at.text_input, *at.number_input, *at.selectbox) if w.key == f"new_{name}")
        widget.set_value(value)
    return at.run()


def row_key(at: AppTest, field: str) -> str:
    return next(
        w.key for w in at.text_input if w.key and w.key.startswith("new_") and w.key.endswith(f"_{field}")
    ).removeprefix("new_")


def simulated(at: AppTest, path: Path) -> AppTest:
    """The form filled in with a run of the simulator over `path`."""
    at = fill(at, engine="simulated")
    key = row_key(at, "path")
    number = key.split("_")[0]
    budget = {f"{number}_token_budget": 5000, f"{number}_name": "math", key: str(path)}
    return fill(at, name="first", model="sim/any", **budget)


def press(at: AppTest, key: str) -> AppTest:
    return at.button(key).click().run()


def made(place: Path) -> list[str]:
    runs = place / "runs"
    return sorted(p.name for p in runs.iterdir()) if runs.is_dir() else []


def toml_of(at: AppTest) -> dict[str, object]:
    return next(tomllib.loads(c.value) for c in at.code if c.value.startswith("name = "))


def test_an_empty_form_says_what_is_missing_and_makes_nothing(form: AppTest, place: Path) -> None:
    assert not form.exception
    assert "name: found" not in words(form), "what is not begun yet is not wrong"
    assert "Give it a name, a model and a dataset" in words(form)
    at = press(form, "new-create")
    assert "It is not created" in words(at)
    assert "name: found" in words(at)
    assert made(place) == []


def test_a_filled_form_shows_its_toml_its_prompts_and_creates_the_run(form: AppTest, place: Path) -> None:
    at = simulated(form, place / "prompts.jsonl")
    assert toml_of(at)["datasets"] == [{"name": "math", "path": str(place / "prompts.jsonl"), "token_budget": 5000}]
    assert "7 prompts in 1 file" in words(at)
    assert "Say 2 & <b>nothing</b> else" in [c.value for c in at.code]
    at = press(at, "new-create")
    assert not at.exception
    assert made(place) == ["first"]
    settings = config.load(RunDir(place / "runs" / "first").config)
    assert (settings.engine.kind, settings.datasets[0].token_budget) == ("simulated", 5000)
    assert settings.frozen is not None


def test_a_wrong_path_is_told_at_its_dataset_and_nothing_typed_is_lost(form: AppTest, place: Path) -> None:
    at = simulated(form, place / "missing.jsonl")
    assert "missing.jsonl does not exist" in words(at)
    at = press(at, "new-create")
    assert "missing.jsonl does not exist" in words(at)
    assert made(place) == []
    assert toml_of(at)["name"] == "first"
    at = fill(at, **{row_key(at, "path"): str(place / "prompts.jsonl")})
    assert "7 prompts" in words(at)
    press(at, "new-create")
    assert made(place) == ["first"]


def test_a_flag_that_headway_refuses_is_told_with_its_reason(form: AppTest, place: Path) -> None:
    at = simulated(form, place / "prompts.jsonl")
    at = fill(fill(at, engine="local"), python="/bin/true", args="--port 30000 --mem-fraction-static 0.9")
    assert "--port is refused: Headway chooses a free one" in words(at)
    assert made(place) == []
    press(at, "new-create")
    assert made(place) == []
    at = fill(at, args="--mem-fraction-static 0.9")
    assert "is refused" not in words(at)
    assert toml_of(at)["engine"]["args"] == ["--mem-fraction-static", "0.9"]  # type: ignore[index]


def test_an_open_quote_in_the_flags_is_told(form: AppTest, place: Path) -> None:
    at = fill(simulated(form, place / "prompts.jsonl"), args="--json-model-override-args '{")
    assert "close the quote" in words(at)


def test_a_program_that_is_not_there_is_told(form: AppTest, place: Path) -> None:
    at = fill(fill(simulated(form, place / "prompts.jsonl"), engine="local"), python="/nowhere/bin/python")
    assert "/nowhere/bin/python is no program on this machine" in words(at)


def test_a_run_of_that_name_is_not_made_twice(place: Path) -> None:
    make_run(place, "first")
    at = press(simulated(open_page("new_run.py"), place / "prompts.jsonl"), "new-create")
    assert "The run first exists already" in words(at)
    assert toml_of(at)["name"] == "first"


def test_datasets_are_added_and_removed(form: AppTest, place: Path) -> None:
    at = press(simulated(form, place / "prompts.jsonl"), "new-add")
    numbers = [w.key for w in at.text_input if w.key.endswith("_path")]
    assert len(numbers) == 2
    at = fill(at, **{numbers[1].removeprefix("new_"): str(place / "prompts.jsonl")})
    assert "datasets[1].name" in words(at)
    at = press(at, f"new-remove-{numbers[1].split('_')[1]}")
    assert [d["name"] for d in toml_of(at)["datasets"]] == ["math"]  # type: ignore[attr-defined, index]


def test_a_run_that_is_there_is_begun_with(place: Path) -> None:
    make_run(place, "former")
    at = open_page("new_run.py")
    at.selectbox("new_origin_run").set_value("former").run()
    at = press(at, "new-from-run")
    data = toml_of(at)
    assert data["name"] == "former-2"
    assert [d["name"] for d in data["datasets"]] == ["alpha", "beta"]  # type: ignore[attr-defined, index]
    assert "frozen" not in data
    press(at, "new-create")
    assert made(place) == ["former", "former-2"]


def test_pasted_toml_keeps_what_the_form_does_not_show(form: AppTest, place: Path) -> None:
    text = 'name = "x"\n[model]\npath = "m"\n[engine]\nkind = "simulated"\n[driver]\nmax_retries = 3\n'
    form.text_area("new_origin_toml").set_value(text).run()
    data = toml_of(press(form, "new-from-toml"))
    assert data["driver"] == {"max_retries": 3}
    form.text_area("new_origin_toml").set_value("name = ").run()
    assert "not valid TOML" in words(press(form, "new-from-toml"))


def test_prompt_files_are_found_by_their_folder(form: AppTest, place: Path) -> None:
    form.text_input("new_find_folder").set_value(str(place)).run()
    form.multiselect("new_find_files").set_value(["prompts.jsonl"]).run()
    at = press(form, "new-find-add")
    assert toml_of(at)["datasets"] == [{"name": "prompts", "path": str(place / "prompts.jsonl")}]
    form.text_input("new_find_folder").set_value(str(place / "none")).run()
    assert "cannot be listed" in words(form)


@pytest.mark.parametrize("choice", ["local", "container", "attached", "cpu", "simulated"])
def test_every_engine_can_be_chosen(choice: str, form: AppTest) -> None:
    at = fill(form, engine=choice)
    assert not at.exception
    assert toml_of(at)["engine"]["kind"] == ("local" if choice == "cpu" else choice)  # type: ignore[index]
