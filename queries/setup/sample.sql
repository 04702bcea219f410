-- One sample of a shard, with its texts.
SELECT * FROM read_parquet($path) WHERE position = $position AND turn = $turn AND attempt = $attempt LIMIT 1
