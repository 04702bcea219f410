"""Texts that want to be more than text, and a run that holds them wherever somebody else's words can stand."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from backend import sweeps
from backend.control.create import create
from backend.records import DatasetState, DatasetStatus, EngineState, Facts, ReplicaStatus
from backend.run_dir import RunDir, open_state
from backend.sweeps import SweepLevel, SweepState
from tests.finished_samples import add_open, sample, seal
from tests.made_run import beat, job_status

MARK: Final = "EVIL"  # stands in each of them
TEXTS: Final = {
    "script": "<script>fetch('https://evil.example/EVIL')</script>",
    "image with handler": "<img src=x onerror=\"alert('EVIL')\">",
    "markdown image": "![EVIL](https://evil.example/EVIL.png)",
    "markdown link": "[EVIL](javascript:alert('EVIL')) **EVIL** :red[EVIL] :material/EVIL: $EVIL$",
    "iframe": '<iframe srcdoc="<script>parent.EVIL=1</script>"></iframe>',
    "svg": '<svg onload="EVIL()"><use href="https://evil.example/EVIL.svg#x"/></svg>',
    "end of element": '"></td></textarea></style></title></script><b>EVIL</b><!-- ',
    "style": "</style><style>*{background:url(https://evil.example/EVIL)}</style><link rel=stylesheet href=//evil.example>",
    "terminal": "\x1b[2J\x1b]8;;https://evil.example/EVIL\x07click\x1b]8;;\x07\x9b31m",
    "right to left": "\u202eLIVE txt.exe\u202c EVIL \u2066\u200f",
    "no spaces": "EVIL" * 2_500,
    "NUL": "EVIL\0EVIL\x08\x7f",
    "surrogates": "EVIL \ud800 \udfff",
    "entities": "&lt;script&gt;EVIL&lt;/script&gt; &#60;img src=x&#62;",
    "template": "{{EVIL}} ${EVIL} {EVIL} %s %(EVIL)s #{EVIL}",
    "separators": "EVIL\u2028EVIL\u2029EVIL\x85EVIL",
}
UNSEEN: Final = ("\x1b", "\u202e", "\u2066", "\u200f", "\0", "\x08", "\x9b", "\ud800", "\u2028")
FOLDER_NAME: Final = "<b onclick=alert(1)>EVIL ![x](https:%2F%2Fevil.example)"  # of a run that somebody copied here
FILE_NAME: Final = "<img src=x onerror=EVIL()> ![EVIL](x).jsonl"


def make_hostile_run(folder: Path) -> RunDir:
    """A run whose texts, errors, events, files and server are all hostile. Its own name is plain; a copy's is not."""
    run = create(_config(folder), folder / "runs")
    now = time.time()
    rows = [_row(i, text, now) for i, text in enumerate(TEXTS.values())]
    add_open(run, [row for row in rows[: len(rows) // 2] for row in row])
    seal(run, "alpha", 1)
    add_open(run, [row for row in rows[len(rows) // 2 :] for row in row])
    _write_events(run, now)
    text = "\n".join(TEXTS.values()).encode("utf-8", "replace").decode()
    for log in (run.supervisor_log(), run.server_log("0")):
        log.write_text(text)
    words = " ".join(t for name, t in TEXTS.items() if name != "surrogates")
    replica = ReplicaStatus("0", EngineState.FAILED, reason=words, url=words, version=words, launch=words, since=now)
    datasets = (
        DatasetStatus("alpha", DatasetState.FAILED, reason=words, bad_lines=3, prompts=5),
        DatasetStatus("beta", DatasetState.HELD, reason=words),
    )
    status = job_status(replicas=(replica,), datasets=datasets, admission_stopped=words, prometheus_url=words)
    beat(run, replace(status), now)
    _write_sweep(run, words)
    copy = folder / "runs" / FOLDER_NAME
    copy.mkdir()
    (copy / "run.toml").write_text(run.config.read_text())
    (folder / "runs" / f"{FOLDER_NAME} broken").mkdir()
    return run


def _write_sweep(run: RunDir, words: str) -> None:
    """One that was read from a file with such a name, and a later one that ended for such a reason."""
    with closing(open_state(run)) as con:
        sweeps.create_tables(con)
        for state, source, reason in ((SweepState.FINISHED, words, None), (SweepState.ENDED, None, words)):
            sweep_id = sweeps.begin(con, at=1.0, who=words, asked=[4], level_limit_s=None, replicas=1, source=source)
            sweeps.add_level(con, sweep_id, SweepLevel(concurrency=4, tokens_per_s=200.0))
            sweeps.end(con, sweep_id, state, reason, 2.0)


def _config(folder: Path) -> Path:
    (folder / FILE_NAME).write_text(json.dumps({"id": TEXTS["script"], "prompt": TEXTS["iframe"]}) + "\n")
    model = json.dumps(TEXTS["script"] + TEXTS["markdown image"])
    path = folder / "hostile.toml"
    path.write_text(
        f'name = "hostile"\n[model]\npath = {model}\nserved_name = {model}\n[engine]\nkind = "simulated"\n'
        + "".join(f'[[datasets]]\nname = "{name}"\npath = {json.dumps(FILE_NAME)}\n' for name in ("alpha", "beta"))
    )
    return path


def _row(number: int, text: str, now: float) -> list[object]:
    shared = {"sample_id": f"{number}{text}", "started_at": now - 60, "model": text, "source": text}
    messages = json.dumps({"messages": [{"role": text, "content": text}], "tools": [{"name": text}]}, ensure_ascii=False)
    answered = sample(
        number, finished_at=now - 50 + number, messages=messages, raw_text=text, reasoning=text, answer=text, tool_calls=text,
        finish_reason=text, facts=Facts(answer_tokens=4), **shared,
    )  # fmt: skip
    refused = sample(
        100 + number, finished_at=now - 20 + number, messages=text, raw_text=None, answer=None, finish_reason="rejected",
        error=text, completion_tokens=0, **{**shared, "sample_id": f"{100 + number}{text}"},
    )  # fmt: skip
    return [answered, refused]


def _write_events(run: RunDir, now: float) -> None:
    with closing(open_state(run)) as con:
        for name, text in TEXTS.items():
            words = text.encode("utf-8", "replace").decode()
            severity = "error" if name == "script" else "warning"
            con.execute(
                "INSERT INTO events (at, kind, subject, severity, message, who, details) VALUES (?, ?, ?, ?, ?, ?, '{}')",
                (now - 10, words, words, severity, words, words),
            )
        words = TEXTS["script"] + TEXTS["markdown image"]
        con.execute(
            "INSERT INTO events (at, kind, subject, severity, message, who, details)"
            " VALUES (?, 'dataset.bad_lines', 'dataset:alpha', 'warning', ?, 'supervisor', '{}')",
            (now - 5, words),
        )
