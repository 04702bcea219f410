"""Flags and config files."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.simulator.command_line import parse_settings
from backend.simulator.flat_yaml import parse_flat_yaml
from backend.simulator.settings import Profile

SGLANG_LINE = (
    "--model-path /models/m --host 127.0.0.1 --port 31000 --tp-size 4 --max-running-requests 64 --mem-fraction-static 0.9 "
    "--max-total-tokens 65536 --served-model-name tiny --enable-metrics --log-level warning --random-seed 7 "
    "--decode-log-interval 10 --context-length 4096 --reasoning-parser qwen3 --tool-call-parser qwen25 --trust-remote-code "
    "--attention-backend fa3 --cuda-graph-bs-decode 1 2 4 --dp-size 1 --watchdog-timeout 600 --schedule-policy lpm"
)


def test_a_command_line_for_sglang_is_understood() -> None:
    settings = parse_settings(SGLANG_LINE.split())
    assert (settings.model_name, settings.port, settings.tp_size, settings.random_seed) == ("tiny", 31000, 4, 7)
    assert (settings.max_running, settings.max_total_tokens, settings.context_length) == (64, 65536, 4096)
    assert settings.enable_metrics
    assert not settings.access_log
    assert settings.reasoning_parser == "qwen3"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--no-such-flag", "unrecognized arguments: --no-such-flag"),
        ("--enable-metric", "unrecognized arguments"),
        ("--port many", "invalid int value"),
        ("--fault sleepy", "unknown fault 'sleepy'"),
        ("--curve 3", "curve point"),
        ("--speed 0", "must be above 0"),
        ("--lengths /nowhere.json", "No such file"),
        ("--config /nowhere.yaml", "--config"),
    ],
)
def test_nonsense_leaves_with_code_2_and_says_why(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_settings(line.split())
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_a_config_file_gives_flags_and_the_command_line_wins(tmp_path: Path) -> None:
    path = tmp_path / "engine.yaml"
    path.write_text(
        '# secrets\napi-key: "k: #1"\nport: 4000\nenable-metrics: true\ndisable-radix-cache: false\ncontext_length: 99\n'
    )
    settings = parse_settings(["--config", str(path), "--port", "5000"])
    assert (settings.api_key, settings.port, settings.enable_metrics) == ("k: #1", 5000, True)
    assert not settings.disable_radix_cache
    assert settings.context_length == 99
    assert "k: #1" not in settings.launch_command


def test_an_unknown_flag_in_a_config_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "engine.yaml"
    path.write_text("no-such-flag: 3\n")
    with pytest.raises(SystemExit):
        parse_settings(["--config", str(path)])
    assert "unrecognized arguments: --no-such-flag=3" in capsys.readouterr().err


def test_flat_yaml_reads_lists_quotes_and_comments() -> None:
    text = "---\na: 1  # one\nb: 'it''s'\nc: [1, x]\nd:\n  - 2\n  - y\ne: null\nf: 0.5\n\"g\": no#comment\n"
    values = parse_flat_yaml(text, "f.yaml")
    assert values == {"a": 1, "b": "it's", "c": [1, "x"], "d": [2, "y"], "e": None, "f": 0.5, "g": "no#comment"}


@pytest.mark.parametrize("text", ["just words", "  nested: 1", "- item"])
def test_flat_yaml_names_the_line_it_cannot_read(text: str) -> None:
    with pytest.raises(ValueError, match=r"f\.yaml: line 2"):
        parse_flat_yaml("a: 1\n" + text, "f.yaml")


def test_gpus_come_from_the_flag_else_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert parse_settings([]).gpus == (2, 3)
    assert parse_settings(["--gpus", "1"]).gpus == (1,)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1234")
    assert parse_settings([]).gpus == (0,)


def test_the_simulators_own_flags_are_read() -> None:
    line = "--speed 50 --instant --mean 300 --log-sd 0.2 --profile api --rpm 60 --prices 1,4 --fault hang=3"
    settings = parse_settings(
        [*line.split(), "--fault", "die-at-request=2:hold", "--no-thinking", "--no-children", "--load-s=2.5"]
    )
    assert (settings.speed, settings.instant, settings.profile, settings.requests_per_minute) == (50, True, Profile.API, 60)
    assert (settings.rules[-1].mean, settings.rules[-1].log_sd) == (300, 0.2)
    assert settings.prices.output_usd_per_mtok == 4
    assert settings.faults == (("hang", "3"), ("die-at-request", "2:hold"))
    assert not settings.thinking
    assert not settings.children
    assert settings.curve.at(10) == pytest.approx(600)
