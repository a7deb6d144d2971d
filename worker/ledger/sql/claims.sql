-- name: claim
-- absent -> in_progress. Holds the own session row FOR KEY SHARE: it cannot be ended before this commits.
-- No row for an id: somebody has an entry for it (look it up), or the session has ended (no row at all).
-- $1 session  $2 fence  $3 ids (sorted, unique)  $4 which origin each comes from, counted from 1  $5 offsets
-- $6 fingerprints  $7 tenants (null when none has one)  $8 keys; and by origin, the operation on a partition:
-- $9 operations  $10 kinds  $11 ttl seconds  $12 topics  $13 partitions  $14 formats
WITH s AS MATERIALIZED (
  SELECT id FROM oncebox.sessions WHERE id = $1 AND ended_at IS NULL FOR KEY SHARE
), o AS (
  INSERT INTO oncebox.open_claims (fence, session, ids) SELECT $2::bigint, s.id, $3::uuid[] FROM s RETURNING fence
)
INSERT INTO oncebox.entries (fence, expires_at, source_offset, operation, source_topic, source_partition, state, kind,
                             attempts, crashes, held, format, id, fingerprint, tenant, key)
SELECT o.fence, clock_timestamp() + ($11::float8[])[u.origin] * interval '1 second', u.source_offset,
       ($9::int[])[u.origin], ($12::int[])[u.origin], ($13::int[])[u.origin], 1, ($10::smallint[])[u.origin],
       0, 0, 0, ($14::smallint[])[u.origin], u.id, u.fingerprint, u.tenant, u.key
  FROM unnest($3::uuid[], $4::int[], $5::bigint[], $6::bytea[], $7::bytea[], $8::bytea[])
       u(id, origin, source_offset, fingerprint, tenant, key), o
 ORDER BY u.id
ON CONFLICT (id) DO NOTHING
RETURNING id

-- name: claim_new
-- The same where all keys are new: nothing looks for other entries first, and no row is confirmed after it. One id that
-- somebody has an entry for fails the statement, which then has written nothing. As above: $1 session  $2 fence  $3 ids
-- $4 origins  $5 offsets  $6 fingerprints  $7 tenants  $8 keys  $9 operations  $10 kinds  $11 ttl seconds  $12 topics
-- $13 partitions  $14 formats
WITH s AS MATERIALIZED (
  SELECT id FROM oncebox.sessions WHERE id = $1 AND ended_at IS NULL FOR KEY SHARE
), o AS (
  INSERT INTO oncebox.open_claims (fence, session, ids) SELECT $2::bigint, s.id, $3::uuid[] FROM s RETURNING fence
)
INSERT INTO oncebox.entries (fence, expires_at, source_offset, operation, source_topic, source_partition, state, kind,
                             attempts, crashes, held, format, id, fingerprint, tenant, key)
SELECT o.fence, clock_timestamp() + ($11::float8[])[u.origin] * interval '1 second', u.source_offset,
       ($9::int[])[u.origin], ($12::int[])[u.origin], ($13::int[])[u.origin], 1, ($10::smallint[])[u.origin],
       0, 0, 0, ($14::smallint[])[u.origin], u.id, u.fingerprint, u.tenant, u.key
  FROM unnest($3::uuid[], $4::int[], $5::bigint[], $6::bytea[], $7::bytea[], $8::bytea[])
       u(id, origin, source_offset, fingerprint, tenant, key), o
 ORDER BY u.id

-- name: look_up
-- Reads what the rows say about records that did not win a claim. A missing id was pruned, or the session has ended.
-- $1 ids
SELECT id, state, fence, fingerprint, format, attempts, crashes, result_status, content_type, result, result_code,
       extract(epoch FROM due_at - clock_timestamp())::float8 AS due_in, failed_at, expires_at
  FROM oncebox.entries
 WHERE id = ANY($1::uuid[])

-- name: claim_again
-- failed_retryable -> in_progress: fingerprint equal, due, below both caps, and a fence above the row's.
-- No row for an id: one of these no longer holds; look it up again.
-- $1 session  $2 fence  $3 ids (sorted)  $4 fingerprints  $5 attempt caps  $6 kinds  $7 ttl seconds  $8 crash cap
WITH s AS MATERIALIZED (
  SELECT id FROM oncebox.sessions WHERE id = $1 AND ended_at IS NULL FOR KEY SHARE
), o AS (
  INSERT INTO oncebox.open_claims (fence, session, ids) SELECT $2::bigint, s.id, $3::uuid[] FROM s RETURNING fence
)
UPDATE oncebox.entries e
   SET state = 1, fence = o.fence, kind = u.kind, due_at = NULL, expires_at = u.expires_at
  FROM (SELECT x.id, x.fingerprint, x.cap, x.kind, clock_timestamp() AS now,
               clock_timestamp() + x.ttl * interval '1 second' AS expires_at, 3::smallint AS state
          FROM unnest($3::uuid[], $4::bytea[], $5::smallint[], $6::smallint[], $7::float8[])
               x(id, fingerprint, cap, kind, ttl) OFFSET 0) u, o
 WHERE e.id = u.id AND e.state = u.state AND e.fingerprint IS NOT DISTINCT FROM u.fingerprint AND e.fence < o.fence
   AND e.due_at <= u.now AND e.attempts < u.cap AND e.crashes < $8::smallint
RETURNING e.id, e.attempts, e.crashes, e.failed_at

-- name: retake
-- in_progress -> in_progress under a new fence: a claim of ours whose answer was lost, and that nobody runs.
-- $1 session  $2 new fence  $3 ids (sorted)  $4 lost fences, one per id
WITH s AS MATERIALIZED (
  SELECT id FROM oncebox.sessions WHERE id = $1 AND ended_at IS NULL FOR KEY SHARE
), o AS (
  INSERT INTO oncebox.open_claims (fence, session, ids) SELECT $2::bigint, s.id, $3::uuid[] FROM s RETURNING fence
)
UPDATE oncebox.entries e
   SET fence = o.fence
  FROM (SELECT x.id, x.fence, 1::smallint AS state
          FROM unnest($3::uuid[], $4::bigint[]) x(id, fence) OFFSET 0) u, o
 WHERE e.id = u.id AND e.fence = u.fence AND e.state = u.state
RETURNING e.id, e.attempts, e.crashes, e.failed_at

-- name: draw_fences
-- The first fence of a fresh block of 1000.
SELECT nextval('oncebox.fences')

-- name: forget_open_claims
-- Deletes the rows of batches whose entries have all left in_progress. $1 fences
DELETE FROM oncebox.open_claims WHERE fence = ANY($1::bigint[])

-- name: open_fences
-- What Postgres believes this session has open. $1 session
SELECT fence, ids FROM oncebox.open_claims WHERE session = $1
