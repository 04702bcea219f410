-- How many tokens a second are made with so many requests in flight? Each answer's tokens are spread evenly over its life.
WITH lives AS (
  SELECT
    started_at - (SELECT min(started_at) FROM samples) AS began, finished_at - (SELECT min(started_at) FROM samples) AS ended,
    completion_tokens / (finished_at - started_at) AS speed
  FROM samples
  WHERE finished_at > started_at),
edges AS (
  SELECT floor(began / $step_s)::BIGINT AS span, 1 AS n, began AS moment, speed FROM lives
  UNION ALL
  SELECT floor(ended / $step_s)::BIGINT, -1, ended, speed FROM lives),
-- up to the end t of a span, requests were in flight for sum(n * (t - moment)) seconds; of tokens likewise
steps AS (
  SELECT span, sum(n) AS n, sum(n * moment) AS n_moment, sum(n * speed) AS speed, sum(n * speed * moment) AS speed_moment
  FROM edges GROUP BY span),
every_span AS (
  SELECT unnest(generate_series(0, (SELECT max(span) FROM steps))) AS span),
so_far AS (
  SELECT
    span,
    (span + 1) * $step_s * sum(n) OVER w - sum(n_moment) OVER w AS busy_s,
    (span + 1) * $step_s * sum(speed) OVER w - sum(speed_moment) OVER w AS tokens
  FROM every_span LEFT JOIN steps USING (span)
  WINDOW w AS (ORDER BY span)),
spans AS (
  SELECT
    span,
    (busy_s - coalesce(lag(busy_s) OVER (ORDER BY span), 0)) / $step_s AS in_flight,
    (tokens - coalesce(lag(tokens) OVER (ORDER BY span), 0)) / $step_s AS tokens_per_s
  FROM so_far)
SELECT
  floor(in_flight / $width + 1e-9)::BIGINT * $width AS from_in_flight,
  count(*) AS spans,
  avg(in_flight) AS in_flight,
  avg(tokens_per_s) AS tokens_per_s,
  sum(tokens_per_s) / sum(in_flight) AS tokens_per_s_a_request
FROM spans
WHERE in_flight > 1e-6
GROUP BY from_in_flight
ORDER BY from_in_flight
