-- name: forget_expired_history
-- What was kept for an audit whose time is over. $1 most rows
DELETE FROM oncebox.history
 WHERE keep_until <= (SELECT max(x.keep_until) FROM (
         SELECT h.keep_until FROM oncebox.history h WHERE h.keep_until < clock_timestamp() ORDER BY h.keep_until LIMIT $1) x)
RETURNING event

-- name: forget_history
-- What else happened to entries. $1 most rows  $2 seconds it is kept
DELETE FROM oncebox.history
 WHERE keep_until IS NULL AND at <= (SELECT max(x.at) FROM (
         SELECT h.at FROM oncebox.history h
          WHERE h.keep_until IS NULL AND h.at < clock_timestamp() - $2::float8 * interval '1 second'
          ORDER BY h.at LIMIT $1) x)
RETURNING event

-- name: forget_sessions
-- Sessions that ended long ago; they stay while open claims name them. $1 most rows  $2 seconds they are kept
DELETE FROM oncebox.sessions
 WHERE id IN (SELECT s.id FROM oncebox.sessions s
               WHERE s.ended_at < clock_timestamp() - $2::float8 * interval '1 second'
                 AND NOT EXISTS (SELECT 1 FROM oncebox.open_claims c WHERE c.session = s.id)
               ORDER BY s.id LIMIT $1)
RETURNING id

-- name: forget_audit
-- What operators did long ago. $1 most rows  $2 seconds it is kept
DELETE FROM oncebox.audit
 WHERE id IN (SELECT a.id FROM oncebox.audit a WHERE a.at < clock_timestamp() - $2::float8 * interval '1 second'
               ORDER BY a.at LIMIT $1)
RETURNING id

-- name: thin_samples
-- Of samples older than a day one an hour is enough: coarser ones only let pruning wait. The one that log time stands at
-- stays. $1 group  $2 topic  $3 partition  $4 log time
DELETE FROM oncebox.samples s
 WHERE s.consumer_group = $1 AND s.topic = $2 AND s.partition = $3
   AND s.at < clock_timestamp() - interval '1 day' AND s.at IS DISTINCT FROM $4::timestamptz
   AND EXISTS (SELECT 1 FROM oncebox.samples n
                WHERE n.consumer_group = $1 AND n.topic = $2 AND n.partition = $3 AND n.at > s.at
                  AND n.at < clock_timestamp() - interval '1 day' AND n.at < date_trunc('hour', s.at) + interval '1 hour')
RETURNING at

-- name: shrink_samples
-- Samples older than the longest TTL shrink to the newest of them, which has the highest watermark; the one that log time
-- stands at stays, too. $1 group  $2 topic  $3 partition  $4 log time
DELETE FROM oncebox.samples s
 WHERE s.consumer_group = $1 AND s.topic = $2 AND s.partition = $3 AND s.at IS DISTINCT FROM $4::timestamptz
   AND s.at < (SELECT max(n.at) FROM oncebox.samples n
                WHERE n.consumer_group = $1 AND n.topic = $2 AND n.partition = $3
                  AND n.at < clock_timestamp() - (SELECT max(o.ttl) FROM oncebox.operations o))
RETURNING at
