"""Page, picture and paragraph say the same, in every state of a run, and only what may leave the box."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from PIL import Image

from backend.report.ending import end_words
from backend.report.forecast import forecast_view
from backend.report.share.files import forms_of, write_forms
from backend.report.share.page import page
from backend.report.share.paragraph import paragraph
from backend.report.share.png import png
from backend.report.share.snapshot import Snapshot, as_of_words, snapshot_of, take_snapshot
from backend.run_dir import RunDir
from tests.made_forecast import status_of, two_datasets, write_finished, write_forecast
from tests.made_run import beat, holding_lock, make_run
from tests.pages.hostile import FOLDER_NAME, MARK, TEXTS, UNSEEN, make_hostile_run
from tests.pages.shown import Markup
from tests.pages.states import STATES, run_in

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 12, 1, 13, 2, tzinfo=UTC).timestamp()
SECRETS = ("pid", "CUDA", "requests are sent again", "its prompt file has changed", "4321", "HTTP 400", "say 1")


@contextmanager
def at_work(folder: Path) -> Iterator[RunDir]:
    """A run of an hour with five hours to go, and a forecast."""
    run, seen = make_run(folder), two_datasets()
    write_finished(run, seen, NOW)
    beat(run, status_of(seen), NOW - 2)
    write_forecast(run, seen, NOW)
    with holding_lock(run, NOW):
        yield run


@pytest.fixture
def shared(tmp_path: Path) -> Snapshot:
    with at_work(tmp_path) as run:
        return take_snapshot(run, NOW, BERLIN)


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace(" ,", ",").replace(" .", ".")


def test_the_sentence_is_the_views_own_with_dates_and_the_name_of_the_zone(tmp_path: Path) -> None:
    with at_work(tmp_path) as run:
        view = forecast_view(run, NOW)
    shared = snapshot_of(view, BERLIN)
    assert shared.sentence == "".join(end_words(view.ending, NOW, BERLIN, later=True, others=True)) + " (CET)."
    assert re.fullmatch(r"Done Tuesday 1 December 1\d:\d\d–\d\d:\d\d, most likely 1\d:\d\d \(CET\)\.", shared.sentence)
    assert view.ending.span is not None
    assert shared.fan is not None
    assert shared.fan.band is not None
    assert shared.fan.end == view.ending.span
    assert shared.fan.band.at[0] == NOW
    assert shared.fan.at[-1] <= NOW


def test_the_paragraph_tells_the_figures_of_the_view(shared: Snapshot) -> None:
    said = paragraph(shared)
    assert said.count("\n") == 1
    assert said.startswith(f"demo: {shared.sentence} {shared.run.sentence} The engine is simulated.")
    for row in shared.assumptions[:2]:
        assert f"{row.name[1:]} {row.value} ({row.source})" in said
    assert said.endswith("As of 1 December 2026 14:02 CET (13:02 UTC), newest figures 2 s old.\n")


def test_the_page_tells_all_of_it(shared: Snapshot) -> None:
    read = squeezed(Markup(page(shared)).text)
    told = [shared.sentence, shared.run.sentence, shared.as_of, shared.data_age, shared.whose, shared.record or "none"]
    told += [words for row in shared.assumptions for words in (row.name, row.value, row.source)]
    told += [words for d in shared.datasets for words in (d.name, d.look.word, d.done, d.ends)]
    assert len(told) > 30
    assert [words for words in told if squeezed(words) not in read] == []


def test_the_page_needs_and_runs_nothing_else(shared: Snapshot) -> None:
    html = page(shared)
    read = Markup(html)
    assert not read.tags & {"script", "img", "iframe", "object", "embed", "a", "form", "base", "use", "image"}
    assert [(name, value) for name, value in read.attributes if name in ("src", "href")] == [("href", "data:,")]
    assert not [name for name, _ in read.attributes if name.startswith("on")]
    assert "url(" not in html
    assert "@import" not in html
    assert "default-src 'none'" in html
    assert len(html) < 40_000


def test_the_picture_is_drawn_whole(shared: Snapshot) -> None:
    image = Image.open(io.BytesIO(png(shared)))
    assert (image.format, image.size) == ("PNG", (1600, 900))
    colours = {colour: count for count, colour in image.convert("RGB").getcolors(1 << 24) or []}
    assert len(colours) > 50
    assert colours[(0x2F, 0x5F, 0xD0)] > 1_000  # the accent: line, range of the end, progress
    edge = [image.getpixel((x, y)) for x in (0, 1599) for y in range(0, 900, 50)]
    assert set(edge) == {(0xFB, 0xFB, 0xF9)}


def test_what_stands_in_the_picture_has_letters_for_its_signs() -> None:
    from backend.report.share.canvas import _font

    font = _font(20.0, False)
    assert getattr(font, "path", "").endswith(".woff2")
    unknown = bytes(font.getmask("\uffff"))
    assert [sign for sign in "–·…éß" if bytes(font.getmask(sign)) == unknown] == []


def test_many_datasets_and_a_long_answer_stay_within_the_picture(shared: Snapshot) -> None:
    long = replace(shared.datasets[0], name="a-name-of-sixty-four-characters-" * 2, ends="28 December 2026 – 17 January 2027")
    run = replace(shared.run, trouble="Nobody works on this run. " * 20)
    crowded = replace(shared, datasets=(long,) * 12, answer="Done " + "w" * 90, likely=", most likely " + "soon " * 40, run=run)
    image = Image.open(io.BytesIO(png(crowded)))
    assert image.size == (1600, 900)
    assert {image.getpixel((x, y)) for x in (0, 20, 1590, 1599) for y in range(0, 900, 10)} == {(0xFB, 0xFB, 0xF9)}


@pytest.mark.parametrize("state", sorted(STATES))
def test_every_state_can_be_shared_without_paths_pids_and_words_of_events(state: str, tmp_path: Path) -> None:
    with run_in(state, tmp_path) as run:
        shared = take_snapshot(run, time.time(), UTC)
        forms = forms_of(shared)
    html, read = forms.page.decode(), squeezed(Markup(forms.page.decode()).text)
    assert shared.run.look.word in read
    assert shared.answer in read
    assert shared.answer in forms.paragraph
    for secret in (*SECRETS, str(tmp_path)):
        assert secret not in html
        assert secret not in forms.paragraph


@pytest.mark.parametrize("name", ["hostile", FOLDER_NAME])
def test_hostile_names_and_words_are_text_or_left_out(name: str, tmp_path: Path) -> None:
    make_hostile_run(tmp_path)
    run = RunDir(tmp_path / "runs" / name)
    forms = forms_of(take_snapshot(run, time.time(), UTC))
    html = forms.page.decode()
    read = Markup(html)
    assert not read.tags & {"script", "img", "iframe", "b", "a", "image", "use"}
    assert not [name for name, _ in read.attributes if name.startswith("on")]
    assert not [name for name, value in read.attributes if MARK in value and name not in ("aria-label", "data-name")]
    for words in (html, forms.paragraph):
        assert not any(character in words for character in UNSEEN)
        assert not any(TEXTS[text] in words for text in ("iframe", "terminal", "template", "no spaces"))
    assert MARK in read.text
    files = write_forms(forms, tmp_path / "to")
    assert {path.parent for path in (files.page, files.picture, files.paragraph)} == {tmp_path / "to"}
    assert re.fullmatch(r"[A-Za-z0-9._-]+\.html", files.page.name)


def test_files_replace_the_former_ones_whole_and_leave_nothing_else(shared: Snapshot, tmp_path: Path) -> None:
    folder = tmp_path / "web/eta"
    first = write_forms(forms_of(shared), folder)
    opened = first.page.open("rb")
    write_forms(forms_of(replace(shared, answer="Done at last")), folder)
    assert b"Done at last" not in opened.read()
    opened.close()
    assert b"Done at last" in first.page.read_bytes()
    assert sorted(path.name for path in folder.iterdir()) == ["demo.html", "demo.png", "demo.txt"]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}


def test_as_of_is_told_in_both_zones() -> None:
    assert as_of_words(NOW, UTC) == "1 December 2026 13:02 UTC"
    assert as_of_words(NOW, ZoneInfo("Asia/Tokyo")) == "1 December 2026 22:02 JST (13:02 UTC)"
    assert as_of_words(NOW + 3600 * 4, ZoneInfo("Asia/Tokyo")) == "2 December 2026 02:02 JST (1 December 17:02 UTC)"
