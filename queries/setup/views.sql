-- What questions ask: `samples`, few columns of all that count, and `stored`, every short column, read from the files.
CREATE OR REPLACE VIEW stored AS
  SELECT * EXCLUDE (seq) FROM (SELECT * FROM $facts_of_shards UNION ALL BY NAME SELECT * FROM open) AS finished
  WHERE NOT EXISTS (
    SELECT 1 FROM superseded AS gone
    WHERE gone.dataset = finished.dataset AND gone.position = finished.position AND gone.turn = finished.turn
      AND gone.attempt = finished.attempt);
CREATE OR REPLACE VIEW samples AS
  SELECT * FROM kept
  UNION ALL BY NAME SELECT $kept_columns FROM open
  UNION ALL BY NAME SELECT $kept_columns FROM $facts_of_others AS others
    WHERE NOT EXISTS (
      SELECT 1 FROM superseded AS gone
      WHERE gone.dataset = others.dataset AND gone.position = others.position AND gone.turn = others.turn
        AND gone.attempt = others.attempt);
