"""A run's configuration while it is written: what the form's fields make of TOML, and back; what is told of prompt files."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from backend.config import ConfigError, DatasetConfig
from backend.control import ControlError
from backend.control.draft import (
    faults_of,
    free_name,
    from_toml,
    list_folder,
    look_at,
    machine_faults,
    merged,
    read_settings,
    stamp,
    to_toml,
    words_of,
)
from backend.control.draft_form import EMPTY_ROW, START, EngineChoice, Thinking, from_data, to_data
from backend.control.rendered_prompt import render
from backend.engine_cpu.place import engine_settings
from backend.prompts import BadLine
from backend.records import Json, Prompt

ROW = EMPTY_ROW | {"name": "math", "path": "/data/*.jsonl"}
FORM = START | {"name": "x", "model": "m"}


def data_of(form: Json, *rows: Json, rest: Json | None = None, cpu: Json | None = None) -> Json:
    return to_data(FORM | form, rows or [ROW], rest or {}, cpu or {"model": {}, "engine": {"args": []}})


@pytest.mark.parametrize(
    ("form", "engine"),
    [
        (
            {"engine": "local", "python": "/opt/py", "gpus": "0, 1,GPU-ab", "tp": 2, "args": "--a 'b c'", "env_from": "HF"},
            {
                "kind": "local", "python": "/opt/py", "gpus": [0, 1, "GPU-ab"], "replicas": 1, "tp": 2, "args": ["--a", "b c"],
                "env_from": ["HF"],
            },
        ),
        (
            {"engine": "container", "image": "sglang:1", "docker_args": "-v /m:/m"},
            {"kind": "container", "image": "sglang:1", "docker_args": ["-v", "/m:/m"], "replicas": 1, "tp": 1},
        ),
        (
            {"engine": "attached", "urls": "http://a:1, http://b:2", "api_key_env": "KEY"},
            {"kind": "attached", "urls": ["http://a:1", "http://b:2"], "api_key_env": "KEY"},
        ),
        (
            {"engine": "simulated", "speed": 20.0, "curve": "1:62,8:370"},
            {"kind": "simulated", "replicas": 1, "tp": 1, "args": ["--speed", "20", "--curve", "1:62,8:370"]},
        ),
    ],
)  # fmt: skip
def test_each_engine_becomes_its_section_and_comes_back(form: Json, engine: Json) -> None:
    data = data_of(form)
    assert data["engine"] == engine
    back, rows = from_data(data)
    assert data_of(back, *rows) == data


def test_the_cpu_engine_brings_its_settings_with_it(tmp_path: Path) -> None:
    cpu = engine_settings(tmp_path)
    data = data_of({"engine": "cpu", "args": "--log-level debug"}, cpu=cpu)
    assert data["model"] == cpu["model"]
    assert data["engine"]["python"] == cpu["engine"]["python"]
    assert data["engine"]["args"] == [*cpu["engine"]["args"], "--log-level", "debug"]
    read_settings(data)


def test_what_the_form_does_not_show_is_kept() -> None:
    rest: Json = {
        "driver": {"max_retries": 3},
        "engine": {"kind": "simulated", "stall_after_s": 9.0, "env": {"A": "b"}},
        "generation": {"chat_template_kwargs": {"style": "x"}},
        "datasets": [{"name": "math", "path": "old", "generation": {"temperature": 0.5}}],
    }
    data = data_of({"engine": "simulated", "thinking": Thinking.OFF}, rest=rest)
    assert data["driver"] == {"max_retries": 3}
    assert (data["engine"]["stall_after_s"], data["engine"]["env"]) == (9.0, {"A": "b"})
    assert data["generation"]["chat_template_kwargs"] == {"style": "x", "enable_thinking": False}
    assert data["datasets"] == [{"name": "math", "path": "/data/*.jsonl", "generation": {"temperature": 0.5}}]


def test_another_kind_of_engine_drops_what_means_nothing_for_it() -> None:
    rest: Json = {"engine": {"kind": "attached", "urls": ["http://a"], "ready_timeout_s": 5.0}}
    data = data_of({"engine": "simulated"}, rest=rest)
    assert "urls" not in data["engine"]
    assert data["engine"]["ready_timeout_s"] == 5.0
    read_settings(data)


def test_a_field_that_is_empty_is_left_out() -> None:
    data = data_of({"engine": EngineChoice.LOCAL, "python": "/p"})
    assert data["datasets"] == [{"name": "math", "path": "/data/*.jsonl"}]
    assert data["generation"] == {"concurrency": 64}
    assert "served_name" not in data["model"]
    assert merged({"a": {"b": 1}, "c": 2}, {"a": {"b": None}, "c": None}) == {}


def test_toml_of_any_shape_becomes_a_form_and_not_an_error() -> None:
    form, rows = from_data({"name": 5, "model": [], "engine": {"kind": "none", "gpus": 3, "tp": True}, "datasets": [7, {}]})
    assert (form["name"], form["engine"], form["tp"], rows) == ("5", EngineChoice.LOCAL, 1, [EMPTY_ROW])


def test_every_fault_is_told_without_the_name_of_its_source() -> None:
    with pytest.raises(ConfigError) as error:
        read_settings({"name": "a b", "model": {"path": "m"}, "engine": {"kind": "simulated"}, "datasets": []})
    faults = faults_of(error.value)
    assert len(faults) == 2
    assert any(fault.startswith("name: found") for fault in faults)


def test_words_are_taken_apart_as_a_shell_does() -> None:
    assert words_of("--a '{\"b\": 1}' --c=d", "engine.args") == ["--a", '{"b": 1}', "--c=d"]
    with pytest.raises(ConfigError, match="close the quote"):
        words_of("--a 'b", "engine.args")


def test_pasted_toml_loses_what_create_adds() -> None:
    assert from_toml('name = "x"\n[frozen]\nfingerprint = "y"\n') == {"name": "x"}
    with pytest.raises(ConfigError, match="not valid TOML"):
        from_toml("name = ")


def test_a_lone_surrogate_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="what TOML cannot"):
        to_toml({"name": "\ud800"})


def test_what_this_machine_lacks_is_told(tmp_path: Path) -> None:
    form = {"engine": "local", "python": "/nowhere/python", "model": "/nowhere/model", "env_from": "HF_TOKEN"}
    faults = machine_faults(read_settings(data_of(form)), tmp_path, {"PATH": ""})
    assert [fault.split(":")[0] for fault in faults] == ["engine.python", "model.path", "engine"]
    docker = machine_faults(read_settings(data_of({"engine": "container", "image": "i"})), tmp_path, {"PATH": str(tmp_path)})
    assert docker == ["engine.docker: docker is not installed here, or not in PATH"]
    assert machine_faults(read_settings(data_of({"engine": "simulated"})), tmp_path, {}) == []


def test_prompts_are_counted_and_the_first_are_seen(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "one"}\nnot json\n{"prompt": "two"}\n{"prompt": "three"}\n')
    dataset = DatasetConfig(name="a", path="a.jsonl", system_prompt="Be brief.")
    look = look_at(dataset, tmp_path)
    assert (look.files, look.prompts, look.fault) == (1, 4, None)
    assert [type(one) for one in look.first] == [Prompt, BadLine, Prompt]
    assert isinstance(look.first[0], Prompt)
    assert [m["role"] for m in look.first[0].messages] == ["system", "user"]


def test_what_is_wrong_with_a_file_is_told(tmp_path: Path) -> None:
    missing = DatasetConfig(name="a", path="a.jsonl")
    assert "does not exist" in (look_at(missing, tmp_path).fault or "")
    assert "no file matches" in (look_at(DatasetConfig(name="a", path="*.jsonl"), tmp_path).fault or "")
    assert stamp(missing, tmp_path) == ()


def test_a_changed_file_has_another_stamp(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "one"}\n')
    before = stamp(DatasetConfig(name="a", path="a.jsonl"), tmp_path)
    path.write_text('{"prompt": "another"}\n')
    assert stamp(DatasetConfig(name="a", path="a.jsonl"), tmp_path) != before


def test_a_folder_shows_names_of_folders_and_prompt_files_only(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.parquet", "notes.txt", ".hidden.jsonl"):
        (tmp_path / name).touch()
    (tmp_path / "sub.jsonl").mkdir()
    listing = list_folder(tmp_path)
    assert (listing.folders, listing.files, listing.left_out) == (("sub.jsonl",), ("a.parquet", "b.jsonl"), 0)
    with pytest.raises(ControlError, match="cannot be listed"):
        list_folder(tmp_path / "none")


def test_a_dataset_is_named_after_its_file() -> None:
    assert free_name("/data/B1 math.jsonl.gz", []) == "B1-math"
    assert free_name("math.jsonl", ["math", "math-2"]) == "math-3"
    assert free_name("---.jsonl", []) == "dataset"


@pytest.fixture
def server() -> Iterator[tuple[str, list[Json]]]:
    """An SGLang that speaks in token ids; what it was asked."""
    asked: list[Json] = []

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body)
            known = {"choices": [{"prompt_token_ids": [1, 2]}]} if "messages" in body else {"text": "<|user|>hello"}
            answer = json.dumps({} if body.get("model") == "old" else known).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}", asked
        http.shutdown()


def test_a_server_renders_a_prompt_with_the_settings_it_will_be_sent_with(server: tuple[str, list[Json]]) -> None:
    url, asked = server
    settings = read_settings(data_of({"engine": "attached", "urls": url, "thinking": Thinking.OFF}))
    prompt = Prompt("math", 0, "p0", ({"role": "user", "content": "hello"},))
    assert render(settings, settings.datasets[0], prompt) == "<|user|>hello"
    assert asked[0]["max_tokens"] == 1
    assert asked[0]["chat_template_kwargs"] == {"enable_thinking": False}
    assert asked[1] == {"tokens": [1, 2], "skip_special_tokens": False}


def test_a_server_that_cannot_render_is_told(server: tuple[str, list[Json]]) -> None:
    url, _ = server
    prompt = Prompt("math", 0, "p0", ({"role": "user", "content": "hello"},))
    old = read_settings(data_of({"engine": "attached", "urls": url, "served_name": "old"}))
    with pytest.raises(ControlError, match="does not tell the token ids"):
        render(old, old.datasets[0], prompt)
    gone = read_settings(data_of({"engine": "attached", "urls": "http://127.0.0.1:9"}))
    with pytest.raises(ControlError, match="cannot be asked"):
        render(gone, gone.datasets[0], prompt)
