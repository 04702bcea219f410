-- Which samples did somebody flag, with a dataset, an outcome and a source, in an order as of `found_samples`?
SELECT
  stored.dataset, position, turn, attempt, outcome, finish_reason, prompt_tokens, completion_tokens, started_at, finished_at
FROM stored JOIN flags USING (dataset, sample_id, turn, attempt)
WHERE ($dataset IS NULL OR stored.dataset = $dataset) AND ($outcome IS NULL OR outcome = $outcome)
  AND ($source IS NULL OR source = $source)
ORDER BY
  CASE $order
    WHEN 'newest' THEN -finished_at WHEN 'oldest' THEN finished_at WHEN 'longest' THEN -completion_tokens
    ELSE completion_tokens END,
  stored.dataset, position DESC, turn DESC
LIMIT $limit
