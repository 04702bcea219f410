from __future__ import annotations

from pathlib import Path

import pytest

from backend.report.log_tail import FIRST_LINES, GROWN_BYTES, LINE_CHARACTERS, log_names, log_path, read_tail, search, shown
from backend.run_dir import RunDir, RunDirError

KEY = "headway-" + "0123456789abcdef" * 3


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "demo")
    run.create_folders()
    return run


@pytest.mark.parametrize(
    "line",
    [
        f"server_args={{'model': 'x', 'api_key': '{KEY}', 'tp': 4}}",
        f"server_args=ServerArgs(api_key='{KEY}', tp=4)",
        f'"hf_token": "{KEY}"',
        f"Authorization: Bearer {KEY}",
        f"launch --api-key {KEY} --tp 4",
        f"launch --api-key={KEY} --tp 4",
        f"HF_TOKEN={KEY}",
        "MY_PASSWORD=correct-horse-battery",
        f"the key is {KEY}",
    ],
)
def test_no_secret_of_a_server_is_shown(line: str) -> None:
    assert KEY not in shown(line)
    assert "correct-horse" not in shown(line)
    assert "***" in shown(line)


def test_figures_about_tokens_are_no_secrets() -> None:
    line = "Prefill batch, #new-token: 33, token usage: 0.01, input throughput (token/s): 160000.00, 'max_total_tokens': 65536"
    assert shown(line) == line


def test_a_line_is_plain_and_not_endless() -> None:
    assert shown("a\x1b[31mred") == "a\\x1b[31mred"
    assert len(shown("x" * 10_000_000)) == LINE_CHARACTERS + 1


def test_a_tail_grows_in_place(run: RunDir) -> None:
    path = run.server_log("0")
    path.write_text("".join(f"line {i}\n" for i in range(1000)))
    first = read_tail(path, None)
    assert (first.lines, first.text.splitlines()[0]) == (FIRST_LINES, f"line {1000 - FIRST_LINES}")
    with path.open("a") as log:
        log.write("new\n")
    second = read_tail(path, first.anchor)
    assert second.anchor == first.anchor
    assert second.text == first.text + "\nnew"


def test_a_tail_begins_anew_when_it_grew_large_or_the_file_is_another(run: RunDir) -> None:
    path = run.server_log("0")
    path.write_text("old\n")
    anchor = read_tail(path, None).anchor
    path.write_text("x" * 99 + "\n")
    path.write_text("".join(f"{i:0100d}\n" for i in range(GROWN_BYTES // 50)))
    grown = read_tail(path, anchor)
    assert grown.anchor != anchor
    path.write_text("short\n")
    assert read_tail(path, grown.anchor).text == "short"
    path.rename(run.server_log("0").with_suffix(".1"))
    path.write_text("rotated\n")
    assert read_tail(path, anchor).text == "rotated"


def test_an_empty_log_is_no_line(run: RunDir) -> None:
    run.server_log("0").touch()
    assert (read_tail(run.server_log("0"), None).text, read_tail(run.server_log("0"), None).lines) == ("", 0)


def test_a_missing_log_is_told_as_a_sentence(run: RunDir) -> None:
    with pytest.raises(RunDirError, match="cannot be read"):
        read_tail(run.server_log("0"), None)


def test_a_search_finds_lines_whatever_their_case_and_takes_secrets_out(run: RunDir) -> None:
    run.server_log("0").write_text(f"CUDA out of memory\nfine\nout of MEMORY, api_key='{KEY}'\n")
    found = search(run.server_log("0"), "Out of memory")
    assert (found.lines, found.searched) == (2, 3)
    assert KEY not in found.text
    assert search(run.server_log("0"), KEY).lines == 0


def test_logs_are_named_and_others_are_refused(run: RunDir) -> None:
    for name in ("10", "2"):
        run.server_log(name).touch()
    assert log_names(run) == ["2", "10"]
    run.supervisor_log().touch()
    assert log_names(run) == ["supervisor", "2", "10"]
    assert log_path(run, "2") == run.server_log("2")
    with pytest.raises(RunDirError, match="has no log"):
        log_path(run, "../../etc/passwd")
