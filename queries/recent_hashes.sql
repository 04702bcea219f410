-- How similar the `limit` answers of a dataset that finished last are: their hashes and lengths, oldest first.
SELECT simhash, answer_tokens
FROM stored
WHERE dataset = $dataset AND finished_at >= (
  SELECT min(finished_at)
  FROM (SELECT finished_at FROM samples WHERE dataset = $dataset ORDER BY finished_at DESC LIMIT $limit) AS recent)
ORDER BY finished_at
