-- name: ping
-- A round trip, and nothing else.
SELECT 1

-- name: survey_operations
-- Names of operations by number.
SELECT id, scope || '/' || operation AS name FROM oncebox.operations ORDER BY id

-- name: survey_doubts
-- Entries in doubt per operation: how many, since when the oldest, how many wait for a probe. $1 most rows counted
SELECT operation, count(*) AS entries, extract(epoch FROM clock_timestamp() - min(since))::float8 AS oldest,
       count(*) FILTER (WHERE reported_at IS NULL AND due_at < clock_timestamp()) AS due
  FROM (SELECT operation, since, due_at, reported_at FROM oncebox.doubts LIMIT $1) d
 GROUP BY operation

-- name: survey_parked
-- Parked records per operation and reason, and how long the oldest has been due. $1 most rows counted
SELECT operation, split_part(reason, ':', 1) AS reason, count(*) AS records,
       coalesce(extract(epoch FROM clock_timestamp() - min(due_at)), 0)::float8 AS overdue
  FROM (SELECT operation, reason, due_at FROM oncebox.parked LIMIT $1) p
 GROUP BY 1, 2

-- name: survey_sessions
-- Sessions that have not ended, per role.
SELECT role, count(*) FILTER (WHERE lease_until >= clock_timestamp()) AS alive,
       count(*) FILTER (WHERE lease_until < clock_timestamp()) AS lapsed
  FROM oncebox.sessions WHERE ended_at IS NULL
 GROUP BY role

-- name: survey_claims
-- Open claims of ended sessions. $1 most rows counted
SELECT count(*) FROM (
  SELECT 1 FROM oncebox.open_claims
   WHERE session IN (SELECT id FROM oncebox.sessions WHERE ended_at IS NOT NULL) LIMIT $1) c

-- name: survey_oldest
-- How long ago the oldest entry that may be pruned expired. No row: the operation has none. One step into an index.
-- $1 operation
SELECT extract(epoch FROM clock_timestamp() - expires_at)::float8 FROM oncebox.entries
 WHERE operation = $1 AND held = 0 AND state IN (2, 3)
 ORDER BY expires_at LIMIT 1

-- name: survey_feeds
-- How long ago each feed in use had read all there was, by its samples; never: since its first sample.
SELECT f.consumer_group, f.topic, f.partition, extract(epoch FROM clock_timestamp() - coalesce(
         (SELECT s.at FROM oncebox.samples s
           WHERE s.consumer_group = f.consumer_group AND s.topic = f.topic AND s.partition = f.partition
             AND s.end_offset <= n.watermark
           ORDER BY s.at DESC LIMIT 1),
         (SELECT min(s.at) FROM oncebox.samples s
           WHERE s.consumer_group = f.consumer_group AND s.topic = f.topic AND s.partition = f.partition)))::float8 AS behind
  FROM oncebox.feeds f
 CROSS JOIN LATERAL (SELECT s.watermark FROM oncebox.samples s
                      WHERE s.consumer_group = f.consumer_group AND s.topic = f.topic AND s.partition = f.partition
                      ORDER BY s.at DESC LIMIT 1) n
 WHERE f.retired_at IS NULL
