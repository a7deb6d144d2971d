-- name: park
-- Keeps records byte for byte; parking one twice is harmless. Only rows that came back were new.
-- $1 ids  $2 topics  $3 partitions  $4 offsets  $5 operations  $6 reasons  $7 due in seconds (null: not by time)
-- $8 timestamps  $9 timestamp types  $10 keys  $11 values  $12 headers  $13 details
INSERT INTO oncebox.parked (id, topic, partition, "offset", operation, reason, due_at, timestamp_ms, timestamp_type, key, value, headers,
                            detail)
SELECT u.id, u.topic, u.partition, u.position, u.operation, u.reason, clock_timestamp() + u.due * interval '1 second',
       u.timestamp_ms, u.timestamp_type, u.key, u.value, u.headers, u.detail
  FROM unnest($1::uuid[], $2::text[], $3::int[], $4::bigint[], $5::int[], $6::text[], $7::float8[], $8::bigint[],
              $9::smallint[], $10::bytea[], $11::bytea[], $12::bytea[], $13::text[])
       u(id, topic, partition, position, operation, reason, due, timestamp_ms, timestamp_type, key, value, headers, detail)
 ORDER BY u.id, u.topic, u.partition, u.position
ON CONFLICT (id, topic, partition, "offset") DO NOTHING
RETURNING id, topic, partition, "offset"

-- name: postpone
-- A parked record that was tried and has to wait again, perhaps for another reason.
-- $1 ids  $2 topics  $3 partitions  $4 offsets  $5 due in seconds  $6 reasons  $7 details
UPDATE oncebox.parked p
   SET due_at = u.due_at, reason = u.reason, detail = u.detail
  FROM (SELECT x.id, x.topic, x.partition, x.position, x.reason, x.detail,
               clock_timestamp() + x.due * interval '1 second' AS due_at
          FROM unnest($1::uuid[], $2::text[], $3::int[], $4::bigint[], $5::float8[], $6::text[], $7::text[])
               x(id, topic, partition, position, due, reason, detail) OFFSET 0) u
 WHERE p.id = u.id AND p.topic = u.topic AND p.partition = u.partition AND p."offset" = u.position

-- name: hold
-- Raises held for newly parked records, in the transaction that parked them; 0 only locks the entry in its state.
-- No row for an id: the entry left those states meanwhile, or was pruned; unpark and look it up again.
-- $1 ids (sorted)  $2 how many records each  $3 states in which the records may wait
UPDATE oncebox.entries e
   SET held = e.held + u.n
  FROM (SELECT x.id, x.n FROM unnest($1::uuid[], $2::int[]) x(id, n) OFFSET 0) u
 WHERE e.id = u.id AND e.state = ANY($3::smallint[])
RETURNING e.id

-- name: unpark
-- $1 ids  $2 topics  $3 partitions  $4 offsets
DELETE FROM oncebox.parked p
 USING (SELECT x.id, x.topic, x.partition, x.position
          FROM unnest($1::uuid[], $2::text[], $3::int[], $4::bigint[]) x(id, topic, partition, position) OFFSET 0) u
 WHERE p.id = u.id AND p.topic = u.topic AND p.partition = u.partition AND p."offset" = u.position
RETURNING p.id

-- name: unhold
-- Lowers held for records that are finished, in the transaction that unparked them. $1 ids (sorted)  $2 how many each
UPDATE oncebox.entries e
   SET held = greatest(e.held - u.n, 0)
  FROM (SELECT x.id, x.n FROM unnest($1::uuid[], $2::int[]) x(id, n) OFFSET 0) u
 WHERE e.id = u.id

-- name: take_due_parked
-- Parked records whose time has come, each taken for a while so that two workers do not both run it now (harmless if so:
-- the claim decides). Letters owed for records that no handler fits have no operation: found by their topic.
-- $1 operations  $2 most rows  $3 seconds until it may be taken again  $4 topics
WITH u AS MATERIALIZED (
  (SELECT id, topic, partition, "offset", clock_timestamp() AS now FROM oncebox.parked
    WHERE operation = ANY($1::int[]) AND due_at <= (SELECT clock_timestamp())
    ORDER BY due_at LIMIT $2)
  UNION ALL
  (SELECT id, topic, partition, "offset", clock_timestamp() AS now FROM oncebox.parked
    WHERE operation IS NULL AND topic = ANY($4::text[]) AND due_at <= (SELECT clock_timestamp())
    ORDER BY due_at LIMIT $2)
)
UPDATE oncebox.parked p
   SET due_at = u.now + $3::float8 * interval '1 second'
  FROM u
 WHERE p.id = u.id AND p.topic = u.topic AND p.partition = u.partition AND p."offset" = u."offset" AND p.due_at <= u.now
RETURNING p.id, p.topic, p.partition, p."offset", p.operation, p.reason, p.detail, p.timestamp_ms, p.timestamp_type, p.key, p.value, p.headers

-- name: count_parked
SELECT reason, count(*) AS n FROM oncebox.parked GROUP BY reason
