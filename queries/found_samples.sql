-- Which samples are there of a dataset, an outcome and a source, in an order: newest, oldest, longest or shortest first?
SELECT dataset, position, turn, attempt, outcome, finish_reason, prompt_tokens, completion_tokens, started_at, finished_at
FROM samples
WHERE ($dataset IS NULL OR dataset = $dataset) AND ($outcome IS NULL OR outcome = $outcome)
  AND ($source IS NULL OR source = $source)
ORDER BY
  CASE $order
    WHEN 'newest' THEN -finished_at WHEN 'oldest' THEN finished_at WHEN 'longest' THEN -completion_tokens
    ELSE completion_tokens END,
  dataset, position DESC, turn DESC
LIMIT $limit
