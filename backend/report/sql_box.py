"""Which SQL anybody may ask of a run: one SELECT over the tables of its samples. All else is refused, in words.

A statement is judged by the tree that DuckDB's own parser makes of it, by what is allowed and not by what is known to be bad.
The process that answers it has no right to open other files either (`connection.py`) nor to write one
(`long_question_process.py`), so that one mistake here is not enough.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from backend.report.side_tables import SIDE_TABLES

if TYPE_CHECKING:
    import duckdb

LONGEST: Final = 20_000  # characters of a statement
TABLES: Final[dict[str, str]] = {
    "samples": "every finished sample that counts, its counts and times (epoch seconds), what it is worth",
    "stored": "the same with every short column: sample_id, model, server_epoch, simhash and others",
    "texts": "the same with messages, reasoning, answer, raw_text, tool_calls and token ids",
    **{name: table.holds for name, table in SIDE_TABLES.items()},
}
_NODES: Final = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_SOURCES: Final = frozenset(
    {"BASE_TABLE", "SUBQUERY", "JOIN", "TABLE_FUNCTION", "EXPRESSION_LIST", "EMPTY", "PIVOT", "SHOW_REF", "BOUND_TABLE_REF"}
)
_MODIFIERS: Final = frozenset({"ORDER_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "DISTINCT_MODIFIER"})
_ORDERS: Final = frozenset({"ORDER_DEFAULT", "ASCENDING", "DESCENDING"})
_TABLE_FUNCTIONS: Final = frozenset({"range", "generate_series", "unnest"})
_FUNCTIONS_REFUSED: Final = frozenset(
    {"getenv", "getvariable", "current_setting", "set_config", "write_log", "sleep_ms", "json_execute_serialized_sql", "query"}
)
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_]\w*")


class SqlRefusedError(Exception):
    """A statement is not run; the message says why, and what would be."""


def check(statement: str) -> str:
    """The statement as it may be run. Raises SqlRefusedError."""
    text = statement.strip().removesuffix(";").strip()
    if not text:
        raise SqlRefusedError("Write a SELECT, such as: FROM samples SELECT dataset, count(*) GROUP BY dataset")
    if len(text) > LONGEST:
        raise SqlRefusedError(f"The statement has {len(text):,} characters; at most {LONGEST:,} are read.")
    if "\0" in text:
        raise SqlRefusedError("The statement holds a NUL character; remove it.")
    tree = _parse(text)
    if len(tree["statements"]) != 1:
        raise SqlRefusedError(f"One statement at a time is run, and these are {len(tree['statements'])}.")
    for node, names in _walk(tree):
        _judge(node, names)
    return text


def tables_named(statement: str) -> set[str]:
    """Which tables of TABLES a statement names, at least."""
    return {name for name in TABLES if re.search(rf"\b{name}\b", statement, re.IGNORECASE)}


def _judge(node: dict[str, Any], names: frozenset[str]) -> None:
    kind = node.get("type")
    if "class" in node:
        if kind == "FUNCTION" and str(node.get("function_name")).lower() in _FUNCTIONS_REFUSED:
            raise SqlRefusedError(f"The function {node['function_name']} is not run here.")
        return
    if not isinstance(kind, str):
        return
    if kind not in _NODES | _SOURCES | _MODIFIERS | _ORDERS:
        word = kind.removesuffix("_QUERY_NODE").removesuffix("_NODE").replace("_", " ")
        raise SqlRefusedError(f"{word} is not run here: this box only reads.")
    if kind == "TABLE_FUNCTION":
        name = str((node.get("function") or {}).get("function_name")).lower()
        if name not in _TABLE_FUNCTIONS:
            raise SqlRefusedError(f"The table function {name} is not run here: only {_list(TABLES)} can be read.")
    elif kind == "BASE_TABLE":
        _judge_table(node, names)
    elif kind == "SHOW_REF" and not node.get("query"):
        raise SqlRefusedError(f"SHOW is not run here. There are {_list(TABLES)}; DESCRIBE tells the columns of one.")


def _judge_table(node: dict[str, Any], names: frozenset[str]) -> None:
    name = str(node.get("table_name"))
    elsewhere = str(node.get("catalog_name") or "") + str(node.get("schema_name") or "")
    if elsewhere.lower() not in ("", "main") or name.lower() not in names:
        raise SqlRefusedError(f"There is no table {name[:100]!r}. There are {_list(TABLES)}.")


def _plain(name: str) -> str:
    if not _PLAIN_NAME.fullmatch(name):
        raise SqlRefusedError(f"{name[:100]!r} cannot be the name of a table here: use letters, digits and _.")
    return name.lower()


def _parse(text: str) -> dict[str, Any]:
    import duckdb

    try:
        statements = duckdb.extract_statements(text)
        (row,) = _parser().cursor().execute("SELECT json_serialize_sql($1::VARCHAR)", [text]).fetchall()
    except duckdb.Error as error:
        raise SqlRefusedError(str(error)[:2000]) from None
    kinds = {statement.type.name for statement in statements}
    try:
        tree: dict[str, Any] = json.loads(row[0])
    except RecursionError:
        raise SqlRefusedError("The statement is nested too deeply; name its parts by WITH.") from None
    if kinds - {"SELECT"} or tree.get("error"):
        other = ", ".join(sorted(kinds - {"SELECT"})).replace("_", " ")
        raise SqlRefusedError(f"{other or 'This'} is not run here: this box only reads. Write one SELECT.")
    return tree


@cache
def _parser() -> duckdb.DuckDBPyConnection:
    import duckdb

    closed: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "enable_external_access": "false",
        "threads": "1",
    }
    return duckdb.connect(":memory:", config=closed)


def _walk(tree: Any) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """Each node with the names of tables that are known there: outside its statement, a WITH hides none of DuckDB's own."""
    waiting: list[tuple[Any, frozenset[str]]] = [(tree, frozenset(TABLES))]
    while waiting:
        node, names = waiting.pop()
        if isinstance(node, dict):
            names |= {_plain(entry["key"]) for entry in (node.get("cte_map") or {}).get("map", [])}
            if node.get("type") == "RECURSIVE_CTE_NODE":
                names |= {_plain(node["cte_name"])}
            yield node, names
            waiting.extend((child, names) for child in node.values())
        elif isinstance(node, list):
            waiting.extend((child, names) for child in node)


def _list(names: Any) -> str:
    words = list(names)
    return f"{', '.join(words[:-1])} and {words[-1]}"
