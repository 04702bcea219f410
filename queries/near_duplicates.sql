-- Which answers are nearly the same: groups around an answer from which the others differ in at most `bits` (up to 3) of 64?
WITH hashes AS (
  SELECT
    simhash, count(*) AS n, min({'dataset': dataset, 'position': position, 'turn': turn, 'attempt': attempt}) AS first,
    if(simhash < 0, simhash::HUGEINT + 18446744073709551616, simhash)::UBIGINT AS h
  FROM stored
  WHERE simhash IS NOT NULL AND ($dataset IS NULL OR dataset = $dataset)
  GROUP BY simhash),
blocks AS (
  SELECT h, [h & 8191, (h >> 13) & 8191, (h >> 26) & 8191, (h >> 39) & 8191, h >> 52] AS b FROM hashes),
-- of five blocks, three changed bits leave two as they were
keys AS (
  SELECT h, unnest([
    b[1] << 13 | b[2], 1::UBIGINT << 30 | b[1] << 13 | b[3], 2::UBIGINT << 30 | b[1] << 13 | b[4],
    3::UBIGINT << 30 | b[1] << 13 | b[5],
    4::UBIGINT << 30 | b[2] << 13 | b[3], 5::UBIGINT << 30 | b[2] << 13 | b[4],
    6::UBIGINT << 30 | b[2] << 13 | b[5],
    7::UBIGINT << 30 | b[3] << 13 | b[4], 8::UBIGINT << 30 | b[3] << 13 | b[5],
    9::UBIGINT << 30 | b[4] << 13 | b[5]]) AS key
  FROM blocks),
pairs AS (
  SELECT DISTINCT one.h AS one, other.h AS other
  FROM keys AS one JOIN keys AS other ON one.key = other.key AND one.h < other.h
  WHERE bit_count(xor(one.h, other.h)) <= $bits),
near AS (
  SELECT one AS h, other AS near FROM pairs
  UNION ALL SELECT other, one FROM pairs
  UNION ALL SELECT h, h FROM hashes),
-- each joins the most frequent one near it
joined AS (
  SELECT near.h, arg_max(near.near, (middle.n, -middle.h::HUGEINT)) AS middle
  FROM near JOIN hashes AS middle ON middle.h = near.near
  GROUP BY near.h)
SELECT
  sum(hashes.n)::BIGINT AS samples, count(*) AS variants, count(DISTINCT hashes.first.dataset) AS datasets,
  any_value(middle.first.dataset) AS dataset, any_value(middle.first.position) AS position,
  any_value(middle.first.turn) AS turn, any_value(middle.first.attempt) AS attempt
FROM joined JOIN hashes ON hashes.h = joined.h JOIN hashes AS middle ON middle.h = joined.middle
GROUP BY joined.middle
HAVING sum(hashes.n) > 1
ORDER BY samples DESC, dataset, position
LIMIT $limit
