-- What the samples are worth, the most frequent outcome first.
SELECT outcome AS name, count(*) AS samples, sum(completion_tokens)::BIGINT AS completion_tokens
FROM samples
WHERE ($dataset IS NULL OR dataset = $dataset)
GROUP BY outcome
ORDER BY samples DESC, name
