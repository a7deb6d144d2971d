-- name: read_entries
-- Everything about entries but the bytes of their results. A missing id has no entry. $1 ids
SELECT id, operation, tenant, key, state, kind, fence, attempts, crashes, held, error, result_status, content_type, result_code,
       octet_length(result) AS result_bytes, due_at, failed_at, expires_at, source_topic, source_partition, source_offset,
       fingerprint, clock_timestamp() AS now
  FROM oncebox.entries WHERE id = ANY($1::uuid[])

-- name: read_result
-- The stored bytes. $1 id
SELECT content_type, result FROM oncebox.entries WHERE id = $1::uuid

-- name: read_doubts
-- $1 ids
SELECT id, operation, fence, since, quiet_until, due_at, probes, reported_at, quiet_until <= clock_timestamp() AS quiet
  FROM oncebox.doubts WHERE id = ANY($1::uuid[])

-- name: read_claims
-- The claim statements with these fences, and the session of each; no session: its row is gone. $1 fences
SELECT c.fence, c.session, s.role, s.host, s.pid, s.version, s.lease_until, s.ended_at,
       extract(epoch FROM s.lease_until - clock_timestamp())::float8 AS lease_left
  FROM oncebox.open_claims c LEFT JOIN oncebox.sessions s ON s.id = c.session
 WHERE c.fence = ANY($1::bigint[])

-- name: read_parked
-- Records that wait for an entry, without their bytes. $1 id  $2 most rows
SELECT topic, partition, "offset", reason, parked_at, due_at FROM oncebox.parked
 WHERE id = $1::uuid ORDER BY topic, partition, "offset" LIMIT $2

-- name: newest_history
-- The newest things that happened to an entry. $1 id  $2 most rows
SELECT at, event, fence, detail, octet_length(body) AS body_bytes FROM oncebox.history
 WHERE id = $1::uuid ORDER BY at DESC LIMIT $2

-- name: topic_names
-- $1 numbers
SELECT id, name FROM oncebox.topics WHERE id = ANY($1::int[])

-- name: some_tenants
-- Tenants among the entries of an operation that expire last, and among those in doubt: bounded, so perhaps not all there
-- are; with how many rows were looked at. $1 operation  $2 most rows to look at of each
SELECT tenant, (sum(count(*)) OVER ())::bigint AS looked_at FROM (
  SELECT tenant FROM (SELECT tenant FROM oncebox.entries WHERE operation = $1 ORDER BY expires_at DESC LIMIT $2) newest
  UNION ALL
  SELECT tenant FROM oncebox.entries
   WHERE id = ANY(ARRAY(SELECT id FROM oncebox.doubts WHERE operation = $1 ORDER BY due_at LIMIT $2))
) found GROUP BY tenant

-- name: list_doubts
-- Entries in doubt, the oldest first, from a place on. $1 operations (null: all)  $2 in doubt for at least so many seconds
-- $3 after this time  $4 and this id  $5 most rows
SELECT id, since FROM oncebox.doubts
 WHERE ($1::int[] IS NULL OR operation = ANY($1::int[]))
   AND since <= (SELECT clock_timestamp()) - $2::float8 * interval '1 second' AND (since, id) > ($3::timestamptz, $4::uuid)
 ORDER BY since, id LIMIT $5

-- name: list_claims
-- Claim statements that are not finished, from a fence on. $1 after this fence  $2 most rows
SELECT fence, ids FROM oncebox.open_claims WHERE fence > $1 ORDER BY fence LIMIT $2

-- name: list_by_expiry
-- Entries of an operation in any state, those that expire last first, from a place on.
-- $1 operation  $2 before this expiry  $3 and this id  $4 most rows
SELECT id, expires_at, state FROM oncebox.entries
 WHERE operation = $1 AND expires_at <= $2::timestamptz AND (expires_at, id) < ($2::timestamptz, $3::uuid)
 ORDER BY expires_at DESC, id DESC LIMIT $4
