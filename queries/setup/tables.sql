-- What is kept in memory of finished samples: rows of sealed shards, open rows, and which rows a redo replaced.
CREATE TABLE kept (
  dataset VARCHAR, position INTEGER, turn SMALLINT, attempt SMALLINT, source VARCHAR, finish_reason VARCHAR, outcome VARCHAR,
  prompt_tokens INTEGER, completion_tokens INTEGER, reasoning_tokens INTEGER,
  started_at DOUBLE, first_token_at DOUBLE, finished_at DOUBLE, cost_usd DOUBLE);
CREATE TABLE open AS SELECT * FROM $no_facts;
CREATE TABLE superseded (dataset VARCHAR, position INTEGER, turn SMALLINT, attempt SMALLINT);
