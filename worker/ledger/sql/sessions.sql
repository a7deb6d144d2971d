-- name: open_session
-- $1 role  $2 host  $3 pid  $4 version  $5 lease in seconds
INSERT INTO oncebox.sessions (role, host, pid, version, lease, lease_until)
VALUES ($1, $2, $3, $4, $5::float8 * interval '1 second', clock_timestamp() + $5::float8 * interval '1 second')
RETURNING id

-- name: renew
-- Extends the lease of a session that has not ended; a lapsed one succeeds, too, and is steady only from now on.
-- No row: the session has ended for ever. $1 session
UPDATE oncebox.sessions
   SET lease_until = (SELECT clock_timestamp()) + lease,
       steady_since = CASE WHEN lease_until < (SELECT clock_timestamp()) THEN (SELECT clock_timestamp()) ELSE steady_since END
 WHERE id = $1 AND ended_at IS NULL
RETURNING id

-- name: close_session
-- Ends the own session on a clean stop; FOR UPDATE waits for claim statements that still hold it. $1 session
UPDATE oncebox.sessions SET ended_at = clock_timestamp()
 WHERE id = (SELECT id FROM oncebox.sessions WHERE id = $1 AND ended_at IS NULL FOR UPDATE)
RETURNING id

-- name: lapsed_sessions
-- Candidates for ending; the decision is end_session's.
SELECT id FROM oncebox.sessions WHERE ended_at IS NULL AND lease_until < (SELECT clock_timestamp()) ORDER BY id

-- name: end_session
-- Ends a lapsed session, once and for ever, if the asking session has been steady for a whole lease.
-- FOR UPDATE conflicts with the FOR KEY SHARE of claims; a bare UPDATE does not, and a claim could commit afterwards.
-- $1 session to end  $2 own session
UPDATE oncebox.sessions SET ended_at = clock_timestamp()
 WHERE id = (SELECT s.id FROM oncebox.sessions s
              WHERE s.id = $1 AND s.ended_at IS NULL AND s.lease_until < clock_timestamp()
                AND EXISTS (SELECT 1 FROM oncebox.sessions me
                             WHERE me.id = $2 AND me.ended_at IS NULL AND me.lease_until > clock_timestamp()
                               AND me.steady_since < clock_timestamp() - me.lease)
                FOR UPDATE OF s)
RETURNING id

-- name: carry_over
-- Claims of an ended session that nobody has settled yet go on under the new one. $1 ended session  $2 new session
UPDATE oncebox.open_claims SET session = $2 WHERE session = $1
RETURNING fence

-- name: settleable_claims
-- Open claims of ended sessions with the lease those had, oldest first. $1 most rows
SELECT o.fence, o.session, extract(epoch FROM s.lease)::float8 AS lease
  FROM oncebox.open_claims o JOIN oncebox.sessions s ON s.id = o.session
 WHERE s.ended_at IS NOT NULL
 ORDER BY o.fence LIMIT $1

-- name: wait_briefly
-- For this transaction: a row that a stopped worker keeps locked is left for the next round, not waited for.
SELECT set_config('lock_timeout', '500ms', true)

-- name: go_by_id
-- For this transaction: entries are locked in the order of the sorted ids, whatever the statistics of the table say.
-- A plan that goes through the table locks them in the order of their pages, and two of these deadlock.
SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_material', 'off', true)

-- name: take_open_claim
-- First step of settling: whoever deletes the row settles its entries. No row: carried over, or settled already.
-- $1 fence  $2 session
DELETE FROM oncebox.open_claims WHERE fence = $1 AND session = $2
RETURNING ids

-- name: settle
-- in_progress -> unknown (external) or failed_retryable (transactional, repeatable; due now); crashes + 1.
-- $1 ids (sorted)  $2 fence
UPDATE oncebox.entries e
   SET state = CASE WHEN e.kind = 1 THEN 4 ELSE 3 END,
       crashes = e.crashes + 1,
       due_at = CASE WHEN e.kind = 1 THEN NULL ELSE u.now END,
       failed_at = coalesce(e.failed_at, u.now), error = 'the worker died'
  FROM (SELECT x.id, $2::bigint AS fence, 1::smallint AS state, clock_timestamp() AS now
          FROM unnest($1::uuid[]) x(id) OFFSET 0) u
 WHERE e.id = u.id AND e.fence = u.fence AND e.state = u.state
RETURNING e.id, e.kind, e.operation, e.state

-- name: move_expiry
-- A settlement that comes when less than half of the TTL is left keeps the entry for a whole one; same transaction.
-- $1 ids (sorted)  $2 operations
WITH u AS MATERIALIZED (
  SELECT x.id, clock_timestamp() + o.ttl / 2 AS half, clock_timestamp() + o.ttl AS whole
    FROM unnest($1::uuid[], $2::int[]) x(id, operation) JOIN oncebox.operations o ON o.id = x.operation
)
UPDATE oncebox.entries e SET expires_at = u.whole FROM u WHERE e.id = u.id AND e.expires_at < u.half
