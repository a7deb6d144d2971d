-- name: handle_letters
-- Marks dead letters as dealt with, in the transaction that does it. No row for one: somebody else was first.
-- $1 topic  $2 partitions  $3 offsets  $4 timestamps in ms  $5 action  $6 job
INSERT INTO oncebox.handled_letters (topic, partition, "offset", timestamp_ms, action, job)
SELECT $1, u.partition, u.position, u.timestamp_ms, $5, $6
  FROM unnest($2::int[], $3::bigint[], $4::bigint[]) u(partition, position, timestamp_ms)
 ORDER BY u.partition, u.position, u.timestamp_ms
ON CONFLICT (topic, partition, "offset", timestamp_ms) DO NOTHING
RETURNING partition, "offset", timestamp_ms

-- name: handled_letters
-- $1 topic
SELECT partition, "offset", timestamp_ms, action FROM oncebox.handled_letters WHERE topic = $1

-- name: reset_attempts
-- failed_retryable -> failed_retryable, due now, with no attempts and no crashes: an operator redrives the very payload.
-- No row for an id: it is in another state, or has another fingerprint. $1 ids (sorted)  $2 fingerprints
UPDATE oncebox.entries e
   SET attempts = 0, crashes = 0, due_at = u.now
  FROM (SELECT x.id, x.fingerprint, 3::smallint AS state, clock_timestamp() AS now
          FROM unnest($1::uuid[], $2::bytea[]) x(id, fingerprint) OFFSET 0) u
 WHERE e.id = u.id AND e.state = u.state AND e.fingerprint IS NOT DISTINCT FROM u.fingerprint
RETURNING e.id

-- name: parked_of_topic
-- Records parked under a topic's name, in order, after a position. $1 topic  $2 offset  $3 most rows
SELECT id, topic, partition, "offset", operation, reason, detail, timestamp_ms, timestamp_type, key, value, headers
  FROM oncebox.parked WHERE topic = $1 AND "offset" > $2 ORDER BY "offset" LIMIT $3

-- name: read_horizon
-- Up to when an operation's entries may have been pruned; null: none ever was. $1 operation
SELECT (to_jsonb(o) ->> 'horizon')::timestamptz FROM oncebox.operations o WHERE id = $1

-- name: look_at
-- What the rows say about keys, without their results: to tell beforehand what would happen. $1 ids
SELECT id, state, fence, fingerprint, format, attempts, crashes,
       extract(epoch FROM due_at - clock_timestamp())::float8 AS due_in, failed_at, expires_at
  FROM oncebox.entries
 WHERE id = ANY($1::uuid[])
