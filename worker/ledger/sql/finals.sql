-- name: complete
-- in_progress -> completed, only for the fence that ran the handler; late results have their own query.
-- State and fence are join columns: as constants a fresh table's statistics turn this into a scan per row.
-- Fewer rows than ids: for some another decision was recorded first, or they were completed before; look them up.
-- $1 ids (sorted)  $2 fences  $3 result statuses (null: all ok)  $4 content types (null: none has one)
-- $5 results, $6 result codes (null: there are none)
UPDATE oncebox.entries e
   SET state = 2, result_status = u.status, content_type = u.content_type, result = u.result, result_code = u.code
  FROM (SELECT x.id, x.fence, coalesce(x.status, 1::smallint) AS status,
               coalesce(x.content_type, 0::smallint) AS content_type, x.result, x.code, 1::smallint AS state
          FROM unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::smallint[], $5::bytea[], $6::text[])
               x(id, fence, status, content_type, result, code) OFFSET 0) u
 WHERE e.id = u.id AND e.fence = u.fence AND e.state = u.state

-- name: complete_late
-- in_progress, unknown, failed_retryable -> completed: the result of the very claim that was settled meanwhile, or one
-- that took so long that its expiry must move.
-- No row for an id: its fence is not the row's, and the result is refused; or the entry is completed already.
-- $1 ids (sorted)  $2 fences, and as above $3 statuses  $4 content types  $5 results  $6 codes; $7 ttl seconds
UPDATE oncebox.entries e
   SET state = 2, result_status = u.status, content_type = u.content_type, result = u.result, result_code = u.code,
       due_at = NULL, expires_at = CASE WHEN e.expires_at < u.half THEN u.whole ELSE e.expires_at END
  FROM (SELECT x.id, x.fence, coalesce(x.status, 1::smallint) AS status,
               coalesce(x.content_type, 0::smallint) AS content_type, x.result, x.code,
               clock_timestamp() + x.ttl * interval '0.5 second' AS half,
               clock_timestamp() + x.ttl * interval '1 second' AS whole
          FROM unnest($1::uuid[], $2::bigint[], $3::smallint[], $4::smallint[], $5::bytea[], $6::text[], $7::float8[])
               x(id, fence, status, content_type, result, code, ttl) OFFSET 0) u
 WHERE e.id = u.id AND e.fence = u.fence AND e.state IN (1, 3, 4)
RETURNING e.id

-- name: complete_one
-- in_progress -> completed, in the transaction of a transactional handler, on a connection whose planner is the user's:
-- by its primary key alone a fresh table is not scanned, as it would be by the join of complete.
-- No row: another decision was recorded first.
-- $1 id  $2 fence  $3 result status  $4 content type  $5 result  $6 result code
UPDATE oncebox.entries
   SET state = 2, result_status = $3::smallint, content_type = $4::smallint, result = $5::bytea, result_code = $6::text
 WHERE id = $1::uuid AND fence = $2::bigint AND state = 1
RETURNING id

-- name: fail
-- in_progress -> failed_retryable: proof that nothing was executed (attempts + 1, backoff).
-- unknown -> failed_retryable: the very claim in doubt ended after all with that proof (due now, no attempt).
-- No row for an id: another decision was recorded first.
-- $1 ids (sorted)  $2 fences  $3 delays in seconds  $4 errors
UPDATE oncebox.entries e
   SET state = 3, attempts = CASE WHEN e.state = 1 THEN e.attempts + 1 ELSE e.attempts END,
       due_at = CASE WHEN e.state = 1 THEN u.due_at ELSE u.now END,
       error = u.error, failed_at = coalesce(e.failed_at, u.now)
  FROM (SELECT x.id, x.fence, x.error, clock_timestamp() + x.delay * interval '1 second' AS due_at, clock_timestamp() AS now
          FROM unnest($1::uuid[], $2::bigint[], $3::float8[], $4::text[]) x(id, fence, delay, error) OFFSET 0) u
 WHERE e.id = u.id AND e.fence = u.fence AND e.state IN (1, 4)
RETURNING e.id, e.operation

-- name: release
-- in_progress -> failed_retryable, due now, counting nothing: a claim whose handler never started.
-- unknown -> failed_retryable: the very claim in doubt never started, and its worker lives to prove it.
-- $1 ids (sorted)  $2 fences
UPDATE oncebox.entries e
   SET state = 3, due_at = u.now
  FROM (SELECT x.id, x.fence, clock_timestamp() AS now
          FROM unnest($1::uuid[], $2::bigint[]) x(id, fence) OFFSET 0) u
 WHERE e.id = u.id AND e.fence = u.fence AND e.state IN (1, 4)
RETURNING e.id, e.operation

-- name: doubt
-- in_progress -> unknown: an external handler ended inside its effect without proof.
-- $1 ids (sorted)  $2 fences  $3 errors
UPDATE oncebox.entries e
   SET state = 4, error = u.error, failed_at = coalesce(e.failed_at, u.now)
  FROM (SELECT x.id, x.fence, x.error, 1::smallint AS state, clock_timestamp() AS now
          FROM unnest($1::uuid[], $2::bigint[], $3::text[]) x(id, fence, error) OFFSET 0) u
 WHERE e.id = u.id AND e.fence = u.fence AND e.state = u.state
RETURNING e.id, e.operation

-- name: write_doubts
-- The side of the transition to unknown that the janitor finds; in the same transaction.
-- $1 ids  $2 operations  $3 fences  $4 lease in seconds  $5 seconds to the first probe
INSERT INTO oncebox.doubts (id, operation, fence, since, quiet_until, due_at)
SELECT u.id, u.operation, u.fence, clock_timestamp(),
       clock_timestamp() + coalesce(o.quiet, interval '0') + $4::float8 * interval '1 second',
       clock_timestamp() + $5::float8 * interval '1 second'
  FROM unnest($1::uuid[], $2::int[], $3::bigint[]) u(id, operation, fence)
  LEFT JOIN oncebox.operations o ON o.id = u.operation
ON CONFLICT (id) DO UPDATE SET fence = excluded.fence, since = excluded.since, quiet_until = excluded.quiet_until,
                               due_at = excluded.due_at, probes = 0, reported_at = NULL

-- name: end_doubts
-- An entry left unknown; in the same transaction. $1 ids
DELETE FROM oncebox.doubts WHERE id = ANY($1::uuid[])

-- name: wake_parked
-- What waited for these entries may be tried now; in the same transaction. $1 ids
UPDATE oncebox.parked SET due_at = (SELECT clock_timestamp()) WHERE id = ANY($1::uuid[])

-- name: refuse_result
-- Keeps a result that was not stored, once: result_refused came with a fence that is no longer the row's, a possible
-- double effect; result_differs came after a verdict about the same claim that gave another result.
-- $1 id  $2 event  $3 fence  $4 detail  $5 result
INSERT INTO oncebox.history (id, event, fence, detail, body)
SELECT $1::uuid, $2::text, $3::bigint, $4::text, $5::bytea
 WHERE NOT EXISTS (SELECT 1 FROM oncebox.history WHERE id = $1::uuid AND event = $2::text AND fence = $3::bigint)
