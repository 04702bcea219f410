-- How are the lengths of the answers distributed, apart by dataset, outcome, source or finish reason?
SELECT
  CASE $by WHEN 'outcome' THEN outcome WHEN 'source' THEN source WHEN 'finish reason' THEN finish_reason ELSE dataset END AS name,
  round(pow(2, floor($per_octave * log2(completion_tokens + 1) + 1e-9) / $per_octave) - 1)::BIGINT AS from_tokens,
  count(*) AS answers
FROM samples
WHERE finish_reason <> 'rejected' AND ($dataset IS NULL OR dataset = $dataset)
GROUP BY name, from_tokens
ORDER BY name, from_tokens
