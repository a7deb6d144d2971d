-- name: count_parked_of
-- How many records wait for an entry. $1 id
SELECT count(*) FROM oncebox.parked WHERE id = $1::uuid

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
