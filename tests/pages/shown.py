"""What a page run by AppTest sends to the browser: every element, and every text in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from streamlit.testing.v1 import AppTest

FRAME = Path(__file__).resolve().parents[2] / "pages" / "frame.py"
LISTED = [page for page in re.findall(r'"([a-z_]+\.py)"', FRAME.read_text()) if (FRAME.parent / page).is_file()]
_KEPT = {
    "id", "form_id", "element_hash", "user_key", "query_param_key", "page_script_hash", "js_content",
    "css_content", "component_name",
}  # fmt: skip
_NEVER_CLOSED = {"br", "path", "rect"}


def open_page(page: str, *, run: str | None = None, **parameters: str) -> AppTest:
    """The page as a fresh tab shows it."""
    at = AppTest.from_file(FRAME, default_timeout=30)
    for name, value in ({"run": run} if run is not None else {}).items() | parameters.items():
        at.query_params[name] = value
    if page == "new_run.py":
        at.run()  # its address is not its file's name: only the frame can tell it
    at.switch_page(page)
    return at.run()


def elements(at: AppTest) -> Iterator[tuple[str, Any]]:
    """(kind, protocol message) of every element and of every block that has a label, in dialogs too."""
    for top in at._tree.children.values():
        yield from _walk(top)


def strings(message: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """(field, text) of every text within a protocol message."""
    for descriptor, value in message.ListFields():
        name = f"{field}.{descriptor.name}" if field else descriptor.name
        many = value if descriptor.is_repeated else [value]
        for one in many:
            if isinstance(one, str):
                yield name, one
            elif hasattr(one, "ListFields"):
                yield from strings(one, name)


def is_kept(field: str) -> bool:
    """Whether the browser keeps the field for itself and draws nothing of it."""
    return field.rpartition(".")[2] in _KEPT


def words(at: AppTest) -> str:
    """Everything that can be read on the page, and what live parts are given."""
    every = (pair for _, message in elements(at) for pair in strings(message))
    return "\n".join(text for field, text in every if not is_kept(field) and not text.startswith("<style"))


class Markup(HTMLParser):
    """Tags and attributes of an HTML text, and what stands between them."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.oddities: list[str] = []  # comments and the like, and ends of what was not begun
        self._open: list[str] = []
        self.feed(html)
        self.close()
        self.oddities += [tag for tag in self._open if tag not in _NEVER_CLOSED]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._open.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open[-1] in _NEVER_CLOSED:
            self._open.pop()
        if self._open and self._open[-1] == tag:
            self._open.pop()
        else:
            self.oddities.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.oddities.append(data)

    def handle_decl(self, decl: str) -> None:
        self.oddities.append(decl)

    def handle_pi(self, data: str) -> None:
        self.oddities.append(data)


def _walk(node: Any) -> Iterator[tuple[str, Any]]:
    if getattr(node, "proto", None) is not None:
        yield node.type, node.proto
    for child in getattr(node, "children", {}).values():
        yield from _walk(child)
