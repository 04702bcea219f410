-- What of a run is compared with another: a key of each sample (its id, or what it was asked), one sample a key.
SELECT
  CASE $by WHEN 'prompt' THEN hash(messages, turn) ELSE hash(dataset, sample_id, turn) END AS key,
  min(dataset) AS dataset, arg_min(completion_tokens, (dataset, position)) AS completion_tokens,
  arg_min(outcome, (dataset, position)) AS outcome
FROM texts
GROUP BY key
