-- Which samples contain a text in prompt, answer or error, whatever its case, in an order as of `found_samples`?
SELECT dataset, position, turn, attempt, outcome, finish_reason, prompt_tokens, completion_tokens, started_at, finished_at
FROM texts
WHERE ($dataset IS NULL OR dataset = $dataset) AND ($outcome IS NULL OR outcome = $outcome)
  AND ($source IS NULL OR source = $source)
  AND (
    regexp_matches(raw_text, '(?i)' || regexp_escape($text)) OR regexp_matches(messages, '(?i)' || regexp_escape($text))
    OR regexp_matches(error, '(?i)' || regexp_escape($text)))
ORDER BY
  CASE $order
    WHEN 'newest' THEN -finished_at WHEN 'oldest' THEN finished_at WHEN 'longest' THEN -completion_tokens
    ELSE completion_tokens END,
  dataset, position DESC, turn DESC
LIMIT $limit
