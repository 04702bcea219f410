-- What the `limit` samples of a dataset that finished last are worth.
SELECT outcome AS name, count(*) AS samples, sum(completion_tokens)::BIGINT AS completion_tokens
FROM (SELECT outcome, completion_tokens FROM samples WHERE dataset = $dataset ORDER BY finished_at DESC LIMIT $limit) AS recent
GROUP BY outcome
ORDER BY samples DESC, name
