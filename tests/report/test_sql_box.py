"""What anybody may ask in SQL, and each way out that was tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.report.long_question import LongQuestion
from backend.report.sql_box import SqlRefusedError, check
from backend.run_dir import RunDir, RunDirError
from tests.finished_samples import add_open, sample, seal
from tests.made_run import make_run

ASKED = {
    "the short way": "FROM samples",
    "a semicolon at the end": "SELECT 1;",
    "a join with a sub-query": "SELECT * FROM stored JOIN (FROM texts) AS t USING (sample_id) WHERE position IN (SELECT 1)",
    "names of its own": "WITH a AS (SELECT 1 AS x), b AS MATERIALIZED (FROM a) SELECT x FROM b",
    "recursion": "WITH RECURSIVE r AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM r WHERE a < 5) FROM r",
    "sets": "(SELECT 1 UNION SELECT 2) EXCEPT SELECT 3 ORDER BY 1 LIMIT 1",
    "windows": "SELECT sum(completion_tokens) OVER (ORDER BY finished_at DESC) FROM samples QUALIFY row_number() OVER () = 1",
    "a series": "SELECT unnest(range(3)), * FROM generate_series(1, 3), (VALUES (1)) AS v",
    "columns of a table": "DESCRIBE samples",
    "a summary": "SUMMARIZE samples",
    "side tables": "SELECT * FROM events, flags, budgets, billed, replaced",
    "a sample": "FROM samples USING SAMPLE 10",
    "comments": "-- what is asked\nSELECT /* ; */ ';' AS semicolon",
}
ESCAPES = {
    "nothing": "",
    "a comment alone": "-- DROP",
    "copy to a file": "COPY samples TO '/tmp/x.csv'",
    "copy a query": "COPY (SELECT 1) TO '/tmp/x.parquet'",
    "copy within a name of its own": "WITH x AS (COPY samples TO '/tmp/x.csv') FROM x",
    "insert within a name of its own": "WITH x AS (INSERT INTO kept BY NAME FROM samples RETURNING *) FROM x",
    "delete within a name of its own": "WITH x AS (DELETE FROM kept RETURNING *) FROM x",
    "update within a name of its own": "WITH x AS (UPDATE kept SET turn = 1 RETURNING *) FROM x",
    "attach": "ATTACH '{run}/ledger.sqlite' AS l",
    "read_csv": "SELECT * FROM read_csv('/etc/passwd')",
    "read_csv within a scalar": "SELECT (SELECT count(*) FROM read_csv('/etc/passwd'))",
    "read_csv within a lateral join": "FROM samples, LATERAL (FROM read_csv_auto('/etc/passwd'))",
    "read_text": "SELECT content FROM read_text('/etc/passwd')",
    "read_text of the server's key": "SELECT content FROM read_text('{run}/servers/0.json')",
    "read_blob": "FROM read_blob('{run}/servers/0.json')",
    "read_json": "FROM read_json_auto('{run}/servers/0.json')",
    "the key as a table": "FROM '{run}/servers/0.json'",
    "the configuration as a table": "FROM '{run}/run.toml'",
    "a file as a table": "FROM '/etc/passwd'",
    "a file in quotes": 'FROM "/etc/passwd.csv"',
    "a file behind a name of its own": 'WITH "/etc/passwd.csv" AS (SELECT 1) FROM "/etc/passwd.csv"',
    "a shard of another run": "FROM read_parquet('/tmp/other/shards/a/1.parquet')",
    "out of the shards": "FROM read_text('{run}/shards/../run.toml')",
    "parquet's metadata": "FROM parquet_metadata('{run}/shards/*/*.parquet')",
    "glob": "SELECT * FROM glob('/etc/*')",
    "an address": "FROM 'https://example.org/x.parquet'",
    "install": "INSTALL httpfs",
    "load": "LOAD 'httpfs'",
    "pragma": "PRAGMA database_list",
    "pragma as a function": "FROM pragma_database_list()",
    "call": "CALL pragma_version()",
    "set": "SET memory_limit = '100GB'",
    "set a variable": "SET VARIABLE x = 1",
    "reset": "RESET memory_limit",
    "the settings": "FROM duckdb_settings()",
    "the secrets": "FROM duckdb_secrets()",
    "a setting": "SELECT current_setting('memory_limit')",
    "environment": "SELECT getenv('HOME')",
    "environment, otherwise written": "SELECT \"GetEnv\"('HOME')",
    "stacked": "SELECT 1; DROP TABLE kept",
    "stacked selects": "SELECT 1; SELECT 2",
    "create": "CREATE TABLE x AS SELECT 1",
    "create a macro": "CREATE MACRO f(x) AS TABLE FROM read_text(x)",
    "drop": "DROP VIEW samples",
    "alter": "ALTER TABLE kept ADD COLUMN x INTEGER",
    "export": "EXPORT DATABASE '/tmp/x'",
    "import": "IMPORT DATABASE '/tmp/x'",
    "explain analyze": "EXPLAIN ANALYZE DELETE FROM kept",
    "prepare": "PREPARE p AS SELECT 1",
    "a query as text": "FROM query('SELECT 1')",
    "a table as text": "FROM query_table('kept')",
    "a statement as JSON": "FROM json_execute_serialized_sql('{{}}')",
    "the catalogue": "FROM duckdb_tables()",
    "the information schema": "FROM information_schema.tables",
    "SQLite's catalogue": "FROM sqlite_master",
    "a table that is not offered": "FROM kept",
    "a view of DuckDB's own behind a WITH elsewhere": "FROM (WITH duckdb_views AS (SELECT 1) SELECT 1), duckdb_views",
    "a table that is not offered, likewise": "SELECT (WITH kept AS (SELECT 1) SELECT 1), (SELECT count(*) FROM kept)",
    "another schema": "FROM temp.samples",
    "show": "SHOW ALL TABLES",
    "show databases": "SHOW DATABASES",
    "transaction": "BEGIN",
    "a parse error": "SELECT FROM WHERE",
    "NUL": "SELECT 1\0; DROP TABLE kept",
    "very long": "SELECT " + "1," * 20_000 + "1",
    "deep expressions": "SELECT " + "abs(" * 500 + "1" + ")" * 500,
    "deep queries": "SELECT * FROM " + "(SELECT * FROM " * 500 + "samples" + ")" * 500,
    "deeper than DuckDB reads": "SELECT " + "(" * 9_000 + "1" + ")" * 9_000,
}


@pytest.mark.parametrize("name", ASKED)
def test_what_only_reads_the_tables_is_run(name: str) -> None:
    assert check(ASKED[name])


@pytest.mark.parametrize("name", ESCAPES)
def test_each_escape_is_refused_in_words(name: str) -> None:
    with pytest.raises(SqlRefusedError) as refused:
        check(ESCAPES[name].format(run="/runs/demo") if "{" in ESCAPES[name] else ESCAPES[name])
    assert str(refused.value)
    assert "Traceback" not in str(refused.value)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    run = make_run(tmp_path_factory.mktemp("box"))
    add_open(run, [sample(0), sample(1)])
    seal(run, "alpha", 1)
    add_open(run, [sample(2)])
    (run.servers / "0.json").write_text('{"api_key": "the key"}')
    return run


def answered(question: LongQuestion) -> list[dict[str, object]]:
    assert question.wait(60)
    return list(question.result().table.to_pylist())


def test_the_answering_process_checks_again(run: RunDir) -> None:
    with pytest.raises(RunDirError, match="COPY is not run here"):
        answered(LongQuestion(run, sql=f"COPY samples TO '{run.root}/x.csv'"))
    assert not (run.root / "x.csv").exists()


def test_a_statement_is_answered_with_open_and_sealed_rows_and_their_texts(run: RunDir) -> None:
    rows = answered(LongQuestion(run, sql="SELECT position, answer, len(output_ids) AS ids FROM texts ORDER BY position"))
    assert rows == [{"position": i, "answer": f"four {i}", "ids": 4} for i in range(3)]


def test_what_slips_through_the_check_opens_no_file_and_writes_none(run: RunDir, tmp_path: Path) -> None:
    """As if `check` let everything pass: DuckDB itself refuses, and so does the operating system."""
    import subprocess
    import sys

    code = """
import sys, resource, duckdb
from pathlib import Path
from backend.report.long_question_process import _cursor, forbid_writing
from backend.run_dir import RunDir
cursor = _cursor(RunDir(Path(sys.argv[1])), "FROM texts", "500MB")
forbid_writing()
shard = sys.argv[1] + "/shards/alpha/00000001.parquet"
for statement in (
    f"FROM read_text('{sys.argv[1]}/servers/0.json')", "FROM read_text('/etc/passwd')", "FROM read_csv('/etc/passwd')",
    f"FROM read_text('{sys.argv[1]}/shards/../servers/0.json')", f"COPY (FROM range(9999)) TO '{sys.argv[1]}/out.csv'",
    f"COPY (FROM range(9999)) TO '{sys.argv[1]}/shards/out.csv'", "INSTALL httpfs", "LOAD httpfs", "SET memory_limit='9GB'",
    f"ATTACH '{sys.argv[1]}/x.db'", "SET enable_external_access=true", "SET allowed_directories=['/']", "FROM glob('/etc/*')",
):
    try:
        print(statement, cursor.execute(statement).fetchall())
    except duckdb.Error:
        continue
    sys.exit(1)
"""
    done = subprocess.run([sys.executable, "-c", code, str(run.root)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    written = run.shards / "out.csv"
    assert not written.exists() or written.stat().st_size == 0
