-- How many answers of a dataset have about so many tokens: bin k holds those from 2^(k / per_octave) - 1 tokens on.
SELECT
  floor($per_octave * log2(completion_tokens + 1) + 1e-9)::INTEGER AS bin,
  count(*) AS answers
FROM samples
WHERE ($dataset IS NULL OR dataset = $dataset) AND finish_reason <> 'rejected'
GROUP BY bin
ORDER BY bin
