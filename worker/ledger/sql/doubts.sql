-- name: operations_in_doubt
-- Which of these operations have a doubt that is due. $1 operations
SELECT DISTINCT operation FROM oncebox.doubts
 WHERE operation = ANY($1::int[]) AND reported_at IS NULL AND due_at <= (SELECT clock_timestamp())

-- name: take_doubts
-- Takes doubts whose time has come, each for a while: one probe per entry at a time, also with two janitors.
-- No row for a candidate: another process has just taken it.
-- $1 operation  $2 most rows  $3 seconds until it may be taken again
WITH u AS MATERIALIZED (
  SELECT id, clock_timestamp() AS now FROM oncebox.doubts
   WHERE operation = $1 AND reported_at IS NULL AND due_at <= (SELECT clock_timestamp())
   ORDER BY due_at LIMIT $2
)
UPDATE oncebox.doubts d
   SET due_at = u.now + $3::float8 * interval '1 second'
  FROM u
 WHERE d.id = u.id AND d.due_at <= u.now AND d.reported_at IS NULL
RETURNING d.id, d.operation, d.fence, d.probes, u.now AS taken_at,
          extract(epoch FROM u.now - d.since)::float8 AS age, extract(epoch FROM d.quiet_until - u.now)::float8 AS quiet_in

-- name: read_doubtful_entries
-- What the entries of doubts say. No row for an id: it is not in doubt any more. $1 ids
SELECT e.id, e.fence, e.fingerprint, e.format, e.attempts, e.crashes, e.key, e.tenant,
       t.name AS topic, e.source_partition, e.source_offset
  FROM oncebox.entries e LEFT JOIN oncebox.topics t ON t.id = e.source_topic
 WHERE e.id = ANY($1::uuid[]) AND e.state = 4

-- name: read_parked_of
-- One record kept of each entry: the one that was claimed first if it is there, else the oldest.
-- $1 ids  $2 topics  $3 partitions  $4 offsets of the first claims
SELECT DISTINCT ON (p.id) p.id, p.topic, p.partition, p."offset", p.operation, p.reason, p.detail, p.timestamp_ms,
       p.timestamp_type, p.key, p.value, p.headers
  FROM unnest($1::uuid[], $2::text[], $3::int[], $4::bigint[]) u(id, topic, partition, position)
  JOIN oncebox.parked p ON p.id = u.id
 ORDER BY p.id, (p.topic = u.topic AND p.partition = u.partition AND p."offset" = u.position) DESC NULLS LAST,
       p.topic, p.partition, p."offset"

-- name: read_evidence
-- What was said about entries while they were in progress, newest last. $1 ids
SELECT id, detail, body FROM oncebox.history WHERE id = ANY($1::uuid[]) AND event = 'evidence' ORDER BY at

-- name: note_probe
-- A probe that settled nothing, and when to ask again. No row: the doubt is over, or is about another claim now.
-- $1 id  $2 fence  $3 seconds until it is due again
UPDATE oncebox.doubts SET probes = probes + 1, due_at = (SELECT clock_timestamp()) + $3::float8 * interval '1 second'
 WHERE id = $1 AND fence = $2

-- name: put_off_doubt
-- Taken too early: due later, without a probe. $1 id  $2 fence  $3 seconds until it is due
UPDATE oncebox.doubts SET due_at = (SELECT clock_timestamp()) + $3::float8 * interval '1 second' WHERE id = $1 AND fence = $2

-- name: mark_reported
-- The dead letter of a doubt is acknowledged, or its bytes are gone for good. $1 id  $2 fence
UPDATE oncebox.doubts SET reported_at = (SELECT clock_timestamp()) WHERE id = $1 AND fence = $2 AND reported_at IS NULL
RETURNING id

-- name: lock_entry
-- The entry a verdict is about, kept as it is until the verdict's transaction ends. No row: absent. $1 id
SELECT id, state, fence, operation, kind, result_status, content_type, result, result_code
  FROM oncebox.entries WHERE id = $1 FOR UPDATE

-- name: read_doubt
-- The quiet time of the claim in doubt. No row: the entry is not in doubt. $1 id  $2 fence
SELECT quiet_until, extract(epoch FROM quiet_until - clock_timestamp())::float8 AS quiet_in
  FROM oncebox.doubts WHERE id = $1 AND fence = $2

-- name: settle_executed
-- unknown, failed_retryable -> completed: a verdict about this very claim. No row: another decision was recorded first.
-- $1 id  $2 fence  $3 result status  $4 content type  $5 result  $6 result code
UPDATE oncebox.entries
   SET state = 2, result_status = $3, content_type = $4, result = $5, result_code = $6, due_at = NULL
 WHERE id = $1 AND fence = $2 AND state IN (3, 4)
RETURNING id

-- name: settle_not_executed
-- unknown -> failed_retryable, due now: a verdict about this very claim. No row: another decision was recorded first.
-- $1 id  $2 fence
UPDATE oncebox.entries e
   SET state = 3, due_at = u.now
  FROM (SELECT $1::uuid AS id, $2::bigint AS fence, clock_timestamp() AS now OFFSET 0) u
 WHERE e.id = u.id AND e.fence = u.fence AND e.state = 4
RETURNING e.id

-- name: write_history
-- $1 id  $2 event  $3 fence  $4 detail  $5 body
INSERT INTO oncebox.history (id, event, fence, detail, body) VALUES ($1, $2, $3, $4, $5)

-- name: read_history
-- What happened to an entry besides its states, oldest first. $1 id
SELECT at, event, fence, detail FROM oncebox.history WHERE id = $1 ORDER BY at

-- name: database_time
SELECT clock_timestamp()
