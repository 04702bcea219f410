-- When did the first and the last sample finish, of one dataset or of all?
SELECT min(finished_at) AS first_finished_at, max(finished_at) AS last_finished_at
FROM samples
WHERE $dataset IS NULL OR dataset = $dataset
