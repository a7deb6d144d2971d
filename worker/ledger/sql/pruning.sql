-- name: take_duty
-- One process does a duty, and whoever asks within the interval need not; harmless if two do it. No row: not due yet.
-- $1 duty  $2 operation (0: of all)  $3 seconds until it is due again  $4 whether it is taken although it is not due
INSERT INTO oncebox.duties AS d (duty, operation, due)
VALUES ($1, $2, clock_timestamp() + $3::float8 * interval '1 second')
ON CONFLICT (duty, operation) DO UPDATE SET due = excluded.due WHERE $4::boolean OR d.due < clock_timestamp()
RETURNING operation

-- name: prunable_operations
-- Every operation, and how far the wall clock lets its entries go: now without a slack.
SELECT id, scope || '/' || operation AS name, clock_timestamp() - greatest(interval '1 hour', ttl / 10) AS newest,
       extract(epoch FROM audit_ttl)::float8 AS audit_ttl, horizon
  FROM oncebox.operations ORDER BY id

-- name: expired_entries
-- What may be pruned, oldest first, from where the last batch ended; entries that cannot go are passed over.
-- $1 operation  $2 horizon  $3 expiry of the last of the batch before  $4 most rows
SELECT id, expires_at FROM oncebox.entries
 WHERE operation = $1 AND expires_at < $2 AND expires_at >= $3 AND held = 0 AND state IN (2, 3)
 ORDER BY expires_at LIMIT $4

-- name: note_horizon
-- Before the first row goes: entries that expired before this may be gone. $1 operation  $2 horizon
UPDATE oncebox.operations SET horizon = greatest(horizon, $2) WHERE id = $1

-- name: note_prunes
-- Before the first row goes: entries of records below these offsets may be gone.
-- $1 operation  $2 topics  $3 partitions  $4 topic ids (zero: not known)  $5 offsets
INSERT INTO oncebox.prunes AS p (operation, topic, partition, topic_id, below)
SELECT $1, u.topic, u.partition, u.topic_id, max(u.below)
  FROM unnest($2::text[], $3::int[], $4::uuid[], $5::bigint[]) u(topic, partition, topic_id, below)
 GROUP BY u.topic, u.partition, u.topic_id ORDER BY u.topic, u.partition, u.topic_id
ON CONFLICT (operation, topic, partition, topic_id) DO UPDATE SET below = greatest(p.below, excluded.below)

-- name: prune
-- completed, failed_retryable -> absent. Every condition again: a record may have been parked on the row meanwhile.
-- IS TRUE keeps it off the index by expiry: rows must be locked in the order of their ids, or two writers deadlock.
-- No row for an id: it is needed, or gone. $1 ids (sorted)  $2 horizon
DELETE FROM oncebox.entries
 WHERE id = ANY($1::uuid[]) AND (expires_at < $2) IS TRUE AND held = 0 AND state IN (2, 3)
RETURNING id

-- name: prune_for_audit
-- As prune, for a scope with audit_ttl: gives what the history keeps of each, all but the result. $1 ids (sorted)
-- $2 horizon
DELETE FROM oncebox.entries
 WHERE id = ANY($1::uuid[]) AND (expires_at < $2) IS TRUE AND held = 0 AND state IN (2, 3)
RETURNING id, fence, jsonb_build_object(
  'operation', operation, 'tenant', encode(tenant, 'escape'), 'key', encode(key, 'escape'),
  'state', CASE state WHEN 2 THEN 'completed' ELSE 'failed_retryable' END,
  'kind', CASE kind WHEN 1 THEN 'external' WHEN 2 THEN 'transactional' ELSE 'repeatable' END,
  'result_status', CASE result_status WHEN 1 THEN 'ok' WHEN 2 THEN 'rejected' WHEN 3 THEN 'unstorable' END,
  'result_code', result_code, 'attempts', attempts, 'crashes', crashes, 'fingerprint', encode(fingerprint, 'hex'),
  'format', format, 'source_topic', source_topic, 'source_partition', source_partition, 'source_offset', source_offset,
  'failed_at', failed_at, 'error', error, 'expired_at', expires_at)::text AS detail

-- name: write_expired
-- The side of a prune that people can read until the audit TTL is over; in the same transaction.
-- $1 ids  $2 fences  $3 details  $4 audit ttl in seconds
INSERT INTO oncebox.history (id, event, fence, detail, keep_until)
SELECT u.id, 'expired', u.fence, u.detail, clock_timestamp() + $4::float8 * interval '1 second'
  FROM unnest($1::uuid[], $2::bigint[], $3::text[]) u(id, fence, detail)

-- name: pruning_behind
-- How far pruning is behind: per operation the latest horizon and the expiry of its oldest entry.
SELECT o.scope || '/' || o.operation AS name, o.horizon,
       (SELECT min(e.expires_at) FROM oncebox.entries e WHERE e.operation = o.id) AS oldest
  FROM oncebox.operations o ORDER BY o.id

-- name: pruning_holds
-- Live feeds whose log time is behind what the wall clock allows, and since when: pruning waits for them.
WITH f AS MATERIALIZED (
  SELECT f.consumer_group, f.topic, f.partition, f.operations, f.registered_at, f.held_why,
         (SELECT max(s.at) FROM oncebox.samples s
           WHERE s.consumer_group = f.consumer_group AND s.topic = f.topic AND s.partition = f.partition
             AND s.end_offset <= (SELECT w.watermark FROM oncebox.samples w
                                   WHERE w.consumer_group = f.consumer_group AND w.topic = f.topic
                                     AND w.partition = f.partition ORDER BY w.at DESC LIMIT 1)) AS log_time
    FROM oncebox.feeds f WHERE f.retired_at IS NULL
)
SELECT o.scope || '/' || o.operation AS name, f.consumer_group, f.topic, f.partition,
       coalesce(f.log_time, f.registered_at) AS since, f.held_why
  FROM f JOIN oncebox.operations o ON o.id = ANY(f.operations)
 WHERE f.log_time IS NULL OR f.log_time < clock_timestamp() - greatest(interval '1 hour', o.ttl / 10)
 ORDER BY since, name, f.consumer_group, f.topic, f.partition
