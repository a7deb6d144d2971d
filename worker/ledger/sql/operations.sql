-- name: known_operations
-- In the order in which rows are locked by those who then register theirs.
SELECT id, scope, operation, kind, identity, groups, ttl FROM oncebox.operations ORDER BY scope, operation

-- name: has_live_entries
-- $1 operation
SELECT EXISTS (SELECT 1 FROM oncebox.entries WHERE operation = $1)

-- name: register_operation
-- $1 scope  $2 operation  $3 kind  $4 identity  $5 ttl in seconds  $6 quiet in seconds  $7 group
-- $8 audit ttl in seconds (null: none)  $9 what of a result is kept
INSERT INTO oncebox.operations AS o (scope, operation, kind, identity, ttl, quiet, groups, audit_ttl, results)
VALUES ($1, $2, $3, $4, $5::float8 * interval '1 second', $6::float8 * interval '1 second', ARRAY[$7::text],
        $8::float8 * interval '1 second', $9)
ON CONFLICT (scope, operation) DO UPDATE
   SET kind = excluded.kind, identity = excluded.identity, ttl = excluded.ttl, quiet = excluded.quiet,
       audit_ttl = excluded.audit_ttl, results = excluded.results,
       groups = CASE WHEN $7::text = ANY(o.groups) THEN o.groups ELSE o.groups || $7::text END
RETURNING id

-- name: kept_of_results
-- What of a result is kept; no row: the operation is not known. $1 operation
SELECT results FROM oncebox.operations WHERE id = $1

-- name: leave_operation
-- The group no longer registers the operation. $1 operation  $2 group
UPDATE oncebox.operations SET groups = array_remove(groups, $2::text) WHERE id = $1

-- name: register_topic
-- $1 name
INSERT INTO oncebox.topics (name) VALUES ($1) ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id

-- name: read_ledger
SELECT id, filter_key, extract(epoch FROM clock_timestamp())::float8 AS now FROM oncebox.ledger
