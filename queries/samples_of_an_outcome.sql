-- Which samples have an outcome, the newest first?
SELECT dataset, position, turn, attempt, outcome, finish_reason, prompt_tokens, completion_tokens, started_at, finished_at
FROM samples
WHERE outcome = $outcome AND ($dataset IS NULL OR dataset = $dataset)
ORDER BY finished_at DESC, dataset, position, turn
LIMIT $limit
