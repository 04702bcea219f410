-- Where do samples come from: this run's own engine, or APIs by their names?
SELECT source AS name, count(*) AS samples, sum(completion_tokens)::BIGINT AS completion_tokens
FROM samples
WHERE $dataset IS NULL OR dataset = $dataset
GROUP BY source
ORDER BY samples DESC, name
