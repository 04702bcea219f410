"""PURE: what is shared as one HTML file that needs nothing else: no script, no font, no image from elsewhere.

Light or dark as the reader's screen is, readable on a telephone and on paper. Its look is page.css, its colours are
`chart_theme.py`'s.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from backend.report.assumptions import Assumption
from backend.report.chart_theme import faded, palette
from backend.report.end_words import length_words
from backend.report.formatting import DASH, share
from backend.report.looks import Look, Tone
from backend.report.share.drawing import Ink
from backend.report.share.fan import Fan, fan_picture
from backend.report.share.snapshot import SharedDataset, Snapshot
from backend.report.share.svg import svg, text

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # nothing is fetched, whatever stands in a name
_LIKELY_TO_HOLD: Final = "and from then on the range in which 8 of 10 outcomes lie; the bar on the axis is the range of the end"

_TONES: Final = {Tone.DONE: "done", Tone.ACTIVE: "accent", Tone.PAUSED: "paused", Tone.FAILED: "failed", Tone.DIM: "dim"}
_STYLE: Final = Path(__file__).with_name("page.css")


def page(shared: Snapshot) -> str:
    """The whole file."""
    run = shared.run
    simulated = '<span class="simulated">simulated</span>' if run.simulated else ""
    trouble = f'<p class="trouble">{text(run.trouble)}</p>' if run.trouble else ""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="referrer" content="no-referrer">'
        f'<title>{text(f"{run.name}: {shared.answer}")}</title><link rel="icon" href="data:,">'
        f"<style>{_style()}</style></head>\n<body><main>"
        f'<p class="brand"><span class="sign" aria-hidden="true">▲</span>{text(run.name)}{simulated}'
        f'<span class="state">{_state(run.look)}</span></p>'
        f'<h1><span class="answer">{text(shared.answer)}</span>{text(shared.likely)}.</h1>'
        f'<p class="lead">{text(run.sentence)}</p>'
        f'<p class="dim small">as of {text(shared.as_of)} · {text(shared.data_age)}</p>{trouble}'
        f"{_chart(shared)}{_datasets(shared.datasets)}{_assumptions(shared)}"
        f'<footer class="dim small">{text(shared.whose)} · as of {text(shared.as_of)}. Written by Headway; it does not change '
        f"when the run does.</footer></main></body></html>\n"
    )


def _style() -> str:
    light, dark = (_colours(dark=dark) for dark in (False, True))
    inks = "".join(f".s-{ink} {{ stroke: var(--{ink}); }} svg .f-{ink} {{ fill: var(--{ink}); }}\n" for ink in Ink)
    tones = "".join(f".t-{tone} {{ color: var(--{_TONES[tone]}); }}\n" for tone in Tone)
    night = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    return f":root {{ {light} }}\n{night}{_STYLE.read_text()}{inks}{tones}"


def _colours(*, dark: bool) -> str:
    p = palette(dark)
    named = {
        "page": p.page, "panel": p.panel, "ink": p.ink, "dim": p.dim, "line": p.line, "grid": p.grid, "accent": p.accent,
        "fill": faded(p.accent, 0.16 if dark else 0.13), "done": p.done, "paused": p.paused, "failed": p.failed, "font": p.font,
    }  # fmt: skip
    return " ".join(f"--{name}: {colour};" for name, colour in named.items())


def _chart(shared: Snapshot) -> str:
    fan = shared.fan
    if fan is None:
        return ""
    wide = svg(fan_picture(fan, shared.zone, width_px=900, height_px=300, text_px=12.5), "wide")
    narrow = svg(fan_picture(fan, shared.zone, width_px=340, height_px=250, text_px=12.5), "narrow")
    return f'<h2>Finished tokens over time</h2><p class="dim small">{_scope(fan)}</p><div class="panel">{wide}{narrow}</div>'


def _scope(fan: Fan) -> str:
    return f"all datasets together{f', {_LIKELY_TO_HOLD}' if fan.band else ''}"


def _datasets(datasets: tuple[SharedDataset, ...]) -> str:
    rows = [
        [
            ("Dataset", f'<td class="name" data-name="Dataset">{text(d.name)}</td>'),
            ("State", _cell("State", _state(d.look))),
            ("Progress", _cell("Progress", f'<span class="nowrap">{_bar(d.progress)}{text(share(d.progress, 1.0))}</span>')),
            ("Done", _cell("Done", text(d.done))),
            ("Mean so far", _cell("Mean so far", text(d.mean))),
            ("Expected end", _cell("Expected end", text(d.ends))),
        ]
        for d in datasets
    ]
    return f"<h2>Datasets</h2>{_table(rows)}"


def _assumptions(shared: Snapshot) -> str:
    if not shared.assumptions:
        return ""
    rows = [[(name, _cell(name, text(words))) for name, words in _assumption(row)] for row in shared.assumptions]
    record = f'<p class="dim small">{text(shared.record)}</p>' if shared.record else ""
    return f"<h2>What this assumes</h2>{record}{_table(rows)}"


def _assumption(row: Assumption) -> list[tuple[str, str]]:
    later = DASH if row.later_s is None else f"{length_words(row.later_s)} later"
    return [("Assumption", row.name), ("Value", row.value), ("Source", row.source), ("If 10 % worse", later)]


def _table(rows: list[list[tuple[str, str]]]) -> str:
    """Each cell with its column's name."""
    heads = "".join(f"<th>{text(name)}</th>" for name, _ in rows[0]) if rows else ""
    body = "".join(f"<tr>{''.join(cell for _, cell in row)}</tr>" for row in rows)
    return f'<div class="panel"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(name: str, inner: str) -> str:
    return f'<td data-name="{text(name)}"><span>{inner}</span></td>'


def _bar(progress: float | None) -> str:
    filled = "" if progress is None else f'<i style="width:{100 * progress:.1f}%"></i>'
    return f'<span class="bar" aria-hidden="true">{filled}</span>'


def _state(look: Look) -> str:
    return f'<span class="nowrap t-{look.tone}"><span aria-hidden="true">{text(look.sign)}</span> {text(look.word)}</span>'
