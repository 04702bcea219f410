-- The samples of a dataset that finished last, newest first; with an `outcome` only those of that outcome.
SELECT position, turn, attempt, outcome, finish_reason, prompt_tokens, completion_tokens, started_at, finished_at
FROM samples
WHERE dataset = $dataset AND ($outcome IS NULL OR outcome = $outcome)
ORDER BY finished_at DESC, position DESC, turn DESC
LIMIT $limit
