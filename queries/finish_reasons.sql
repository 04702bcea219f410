-- How the samples ended, the most frequent way first.
SELECT finish_reason AS name, count(*) AS samples, sum(completion_tokens)::BIGINT AS completion_tokens
FROM samples
WHERE ($dataset IS NULL OR dataset = $dataset)
GROUP BY finish_reason
ORDER BY samples DESC, name
