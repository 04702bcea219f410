"""What a model, a server, a file name or an event says is shown as plain text on every page, or not at all.

Looked at is what a page sends to the browser: hostile words may stand in texts, code, cells and options, which are drawn as
they are; never in what is read as Markdown, and in HTML only between tags of ours.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from backend.run_dir import RunDir
from tests.pages.hostile import FOLDER_NAME, MARK, TEXTS, UNSEEN, make_hostile_run
from tests.pages.shown import LISTED, Markup, elements, is_kept, open_page, strings

# Element → its fields that the browser draws as they are. Every other text of an element may be read as Markdown.
PLAIN: dict[str, set[str]] = {
    "text": {"body"},
    "code": {"code_text"},
    "selectbox": {"options", "raw_value", "set_value"},
    "multiselect": {"options", "raw_values"},
    "button_group": {"value"},
    "text_input": {"default", "value", "set_value"},
    "text_area": {"default", "value", "set_value"},
    "download_button": {"url"},
    "bidi_component": {"json", "mixed.json", "arrow_data"},
}
OUR_TAGS = {
    "a", "b", "br", "div", "h1", "h2", "h3", "p", "path", "rect", "span", "strong", "style", "svg", "table", "tbody", "td",
    "th", "thead", "time", "tr",
}  # fmt: skip
OUR_ATTRIBUTES = re.compile(
    r"((title|data-name|aria-label)=.*"  # these are texts
    r"|class=[\w -]+|style=(display:\s?block;\s?)?width:\s?[\d.]+%;?|aria-hidden=true|role=[a-z]+|href=\./\?run=[\w%.+~-]+"
    r"|target=_self|viewbox=[\d ]+|d=[\w .-]+|datetime=[\d:T.Z+-]+)",
    re.IGNORECASE | re.DOTALL,
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.setenv("HEADWAY_RUNS", str(tmp_path / "runs"))
    return make_hostile_run(tmp_path)


def check(at: AppTest) -> str:
    """Nothing hostile is more than text. Returns all texts, so that a test can see that hostile ones were among them."""
    assert not at.exception, [e.message for e in at.exception]
    seen = []
    for kind, message in elements(at):
        for field, text in strings(message):
            if not is_kept(field):
                seen.append(text)
                check_text(kind, field, text)
    return "\n".join(seen)


def check_text(kind: str, field: str, text: str) -> None:
    if MARK not in text and not any(character in text for character in UNSEEN):
        return
    if kind == "html":
        markup = Markup(text)
        assert markup.tags <= OUR_TAGS, (field, markup.tags - OUR_TAGS)
        assert not markup.oddities, (field, markup.oddities)
        strange = [f"{name}={value}" for name, value in markup.attributes]
        strange = [each for each in strange if not OUR_ATTRIBUTES.fullmatch(each)]
        assert not strange, (field, strange)
        assert not any(character in markup.text for character in UNSEEN), (field, "unseen characters")
    elif kind == "plotly_chart":
        assert not re.search(r"<(script|img|iframe|svg|a |link|style)", text), text[:500]
    elif kind in ("arrow_data_frame", "dataframe"):
        return  # cells are drawn on a canvas
    else:
        assert field in PLAIN.get(kind, set()), (kind, field, text[:200])
        if kind in ("text", "code"):
            assert not any(character in text for character in UNSEEN), (kind, field, "unseen characters")


@pytest.mark.parametrize("page", LISTED)
def test_hostile_words_stay_text_on_every_page(page: str, run: RunDir) -> None:
    check(open_page(page, run=run.name))


@pytest.mark.parametrize("page", LISTED)
def test_a_run_with_a_hostile_name_stays_text_on_every_page(page: str, run: RunDir) -> None:
    check(open_page(page, run=FOLDER_NAME))


def test_every_hostile_sample_can_be_read_as_text(run: RunDir) -> None:
    at = open_page("datasets.py", run=run.name, dataset="alpha")
    seen = check(at)
    for _ in range(2 * len(TEXTS) - 1):
        at.button("sample-older").click().run()
        seen += check(at)
    assert at.button("sample-older").disabled
    for name in ("script", "markdown image", "iframe", "style", "template"):
        assert TEXTS[name] in seen
    assert "\\x1b[2J" in seen
    assert "\\u202e" in seen


def test_every_hostile_sample_can_be_read_and_flagged_on_the_data_page(run: RunDir) -> None:
    at = open_page("data.py", run=run.name, part="Samples")
    seen = check(at)
    while not at.button("data-sample-next").disabled:
        at.button("data-sample-next").click().run()
        seen += check(at)
    assert TEXTS["markdown image"] in seen
    assert "\\x1b[2J" in seen
    at.button("flag").click().run()
    at.text_area("flag_note").set_value(TEXTS["script"])
    at.button("dialog-agree").click().run()
    assert "&lt;script&gt;" in check(at)


def test_hostile_answers_to_questions_and_hostile_sql_stay_text(run: RunDir) -> None:
    at = open_page("data.py", run=run.name, part="Questions")
    for name in ("tokens_by_hour", "quantiles", "request_speed", "restarts_and_lost_work"):
        at.selectbox("question").select(name).run()
        check(at)
    at = open_page("data.py", run=run.name, part="SQL")
    for text in ("FROM '<img src=x onerror=EVIL>'", "SELECT EVIL![EVIL](x)", 'SELECT 1 AS "<script>EVIL"', "EVIL\x1b[2J\u202e"):
        at.text_area("sql_text").set_value(text).run()
        at.button("sql-run").click().run()
        check(at)


def test_hostile_events_can_be_filtered_and_stay_text(run: RunDir) -> None:
    at = open_page("events.py", run=run.name)
    assert MARK in check(at)
    at.selectbox("events_loudness").select("Errors").run()
    assert "&lt;script&gt;" in check(at)
    for text in TEXTS.values():
        at.text_input("events_text").set_value(text.encode("utf-8", "replace").decode()[:200]).run()
        check(at)


def test_hostile_words_in_the_address_are_no_run_and_no_dataset(run: RunDir) -> None:
    for text in ("<script>EVIL", "![EVIL](https://evil.example)", "../../etc", "EVIL\0"):
        for page in LISTED:
            check(open_page(page, run=text, dataset=text))


class _Proto:
    """A protocol message's stand-in: one text field."""

    def __init__(self, field: str, text: str) -> None:
        self._field = type("Field", (), {"name": field, "is_repeated": False})
        self._text = text

    def ListFields(self) -> list[tuple[Any, str]]:  # noqa: N802  (protobuf's name)
        return [(self._field, self._text)]


@pytest.mark.parametrize("kind", ["markdown", "alert", "metric", "heading", "button", "expander", "toast", "exception"])
@pytest.mark.parametrize("name", sorted(TEXTS))
def test_this_check_would_see_markdown(kind: str, name: str) -> None:
    for field, text in strings(_Proto("body", TEXTS[name])):
        with pytest.raises(AssertionError):
            check_text(kind, field, text)


@pytest.mark.parametrize(
    "name", ["script", "image with handler", "iframe", "svg", "end of element", "style", "terminal", "NUL"]
)
def test_this_check_would_see_html(name: str) -> None:
    with pytest.raises(AssertionError):
        check_text("html", "body", f"<div>{TEXTS[name]}</div>")
