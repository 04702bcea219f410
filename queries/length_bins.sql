-- How many answers of each dataset have about so many tokens, in the bins of `length_histogram`?
SELECT dataset, floor($per_octave * log2(completion_tokens + 1) + 1e-9)::INTEGER AS bin, count(*) AS answers
FROM samples
WHERE finish_reason <> 'rejected'
GROUP BY dataset, bin
ORDER BY dataset, bin
