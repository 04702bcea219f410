-- What is kept in memory of every finished sample, and `samples`: those that count. Times are epoch seconds.
CREATE TABLE sealed (
  dataset VARCHAR, position INTEGER, turn SMALLINT, attempt SMALLINT, finish_reason VARCHAR, outcome VARCHAR,
  prompt_tokens INTEGER, completion_tokens INTEGER, reasoning_tokens INTEGER,
  started_at DOUBLE, finished_at DOUBLE, error VARCHAR);
CREATE TABLE open AS SELECT NULL::BIGINT AS seq, * FROM sealed;
CREATE TABLE superseded (dataset VARCHAR, position INTEGER, turn SMALLINT, attempt SMALLINT);
CREATE VIEW samples AS
  SELECT * FROM (SELECT NULL::BIGINT AS seq, * FROM sealed UNION ALL SELECT * FROM open) AS finished
  WHERE NOT EXISTS (
    SELECT 1 FROM superseded AS gone
    WHERE gone.dataset = finished.dataset AND gone.position = finished.position AND gone.turn = finished.turn
      AND gone.attempt = finished.attempt);
