-- What started anew, what was lost by it, and what was made again?
WITH told(kind, what) AS (
  VALUES
    ('run.started', 'the supervisor started'), ('engine.ready', 'an engine became ready'),
    ('engine.adopted', 'a running engine was taken over'), ('engine.ended', 'an engine ended by itself'),
    ('engine.start_failed', 'a start of an engine failed'), ('engine.stalled', 'an engine stalled'),
    ('engine.failed', 'an engine was given up'), ('engine.lost_requests', 'an engine lost requests, which were sent again'),
    ('engine.former_requests_aborted', 'requests of a former life were aborted'),
    ('dataset.retrying', 'requests of a dataset had to be sent again'), ('dataset.redo', 'samples were asked for again'))
SELECT
  what, count(*) AS times, NULL::BIGINT AS samples, NULL::BIGINT AS completion_tokens,
  min(happened_at) AS first_at, max(happened_at) AS last_at
FROM events JOIN told USING (kind)
GROUP BY what
UNION ALL
SELECT
  'replaced in ' || dataset || ': ' || reason, count(DISTINCT replaced_at), count(*), sum(completion_tokens)::BIGINT,
  min(replaced_at), max(replaced_at)
FROM replaced
GROUP BY dataset, reason
ORDER BY first_at, what
