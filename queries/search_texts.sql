-- Which samples contain a text, in prompt, reasoning or answer, the newest first?
SELECT
  dataset, position, turn, attempt, outcome, finish_reason, prompt_tokens, completion_tokens, started_at, finished_at
FROM texts
WHERE ($dataset IS NULL OR dataset = $dataset) AND ($outcome IS NULL OR outcome = $outcome)
  AND (
    regexp_matches(raw_text, '(?i)' || regexp_escape($text)) OR regexp_matches(messages, '(?i)' || regexp_escape($text))
    OR regexp_matches(error, '(?i)' || regexp_escape($text)))
ORDER BY finished_at DESC, dataset, position, turn
LIMIT $limit
