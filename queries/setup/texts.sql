-- What long questions ask besides: `texts`, every column of all that count, texts and token ids as well.
CREATE OR REPLACE VIEW texts AS
  SELECT * EXCLUDE (seq) FROM (SELECT * FROM $texts_of_shards UNION ALL BY NAME SELECT * FROM open_texts) AS finished
  WHERE NOT EXISTS (
    SELECT 1 FROM superseded AS gone
    WHERE gone.dataset = finished.dataset AND gone.position = finished.position AND gone.turn = finished.turn
      AND gone.attempt = finished.attempt);
