-- name: lock_for_operator
-- Keeps an entry in its state for the rest of the transaction. No row: there is no entry. $1 id
SELECT id, operation, state, kind, fence, held, error FROM oncebox.entries WHERE id = $1::uuid FOR UPDATE

-- name: rule_executed
-- unknown -> completed: the verdict of an operator about the claim in doubt.
-- No row: another decision was recorded first.
-- $1 id  $2 fence  $3 result status  $4 content type  $5 result  $6 result code
UPDATE oncebox.entries
   SET state = 2, result_status = $3::smallint, content_type = $4::smallint, result = $5::bytea, result_code = $6::text,
       due_at = NULL
 WHERE id = $1::uuid AND fence = $2 AND state = 4
RETURNING id

-- name: rule_not_executed
-- unknown -> failed_retryable, due now: the verdict of an operator about the claim in doubt.
-- No row: another decision was recorded first. $1 id  $2 fence
UPDATE oncebox.entries e
   SET state = 3, due_at = u.now
  FROM (SELECT $1::uuid AS id, $2::bigint AS fence, clock_timestamp() AS now OFFSET 0) u
 WHERE e.id = u.id AND e.fence = u.fence AND e.state = 4
RETURNING e.id

-- name: note_verdict
-- What an operator decided, kept with the entry; in the same transaction. $1 id  $2 fence  $3 detail  $4 result
INSERT INTO oncebox.history (id, event, fence, detail, body) VALUES ($1::uuid, 'verdict', $2, $3, $4::bytea)

-- name: lock_claim
-- Keeps a claim statement with its session: nobody settles it or carries it over meanwhile.
-- No row: it is finished, or settled. $1 fence
SELECT fence, session, ids FROM oncebox.open_claims WHERE fence = $1 FOR UPDATE

-- name: session_lease
-- Whether a session has ended, and its lease in seconds. No row: it is gone. $1 session
SELECT ended_at IS NOT NULL AS ended, extract(epoch FROM lease)::float8 AS lease FROM oncebox.sessions WHERE id = $1

-- name: read_fence
-- The fence of the newest claim. No row: there is no entry. $1 id
SELECT fence FROM oncebox.entries WHERE id = $1::uuid
