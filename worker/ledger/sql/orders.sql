-- name: read_pauses
SELECT what, name, since, actor, reason, clock_timestamp() AS now FROM oncebox.pauses ORDER BY since, what, name

-- name: write_pause
-- No row: it is paused already. $1 handler or topic  $2 name  $3 actor  $4 reason
INSERT INTO oncebox.pauses (what, name, actor, reason) VALUES ($1, $2, $3, $4)
ON CONFLICT (what, name) DO NOTHING
RETURNING name

-- name: end_pause
-- No row: it was not paused. $1 handler or topic  $2 name
DELETE FROM oncebox.pauses WHERE what = $1 AND name = $2
RETURNING since, actor, reason

-- name: known_topics
-- Topics that handlers of any group read.
SELECT name FROM oncebox.topics ORDER BY name

-- name: write_skip
-- Asks the workers of a group to dead-letter one record, or to read a held partition on. No row: asked for before.
-- $1 group  $2 topic  $3 partition  $4 offset  $5 actor  $6 reason  $7 whether the partition is held
INSERT INTO oncebox.skips (consumer_group, topic, partition, "offset", actor, reason, move) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (consumer_group, topic, partition, "offset") DO NOTHING
RETURNING "offset"

-- name: read_skip
-- $1 group  $2 topic  $3 partition  $4 offset
SELECT asked_at, actor, reason, done_at FROM oncebox.skips
 WHERE consumer_group = $1 AND topic = $2 AND partition = $3 AND "offset" = $4

-- name: open_skips
-- Records that the workers of a group have still to skip. $1 group
SELECT topic, partition, "offset", reason, move FROM oncebox.skips WHERE consumer_group = $1 AND done_at IS NULL

-- name: held_feed
-- Why a group does not read a partition. No row: it is not held. $1 group  $2 topic  $3 partition
SELECT held_since, held_why FROM oncebox.feeds
 WHERE consumer_group = $1 AND topic = $2 AND partition = $3 AND held_since IS NOT NULL

-- name: read_feed_on
-- A held partition is read on. $1 group  $2 topic  $3 partition
UPDATE oncebox.feeds SET held_since = NULL, held_why = NULL WHERE consumer_group = $1 AND topic = $2 AND partition = $3

-- name: finish_skips
-- The group has committed past these records. $1 group  $2 topics  $3 partitions  $4 offsets
UPDATE oncebox.skips s
   SET done_at = clock_timestamp()
  FROM unnest($2::text[], $3::int[], $4::bigint[]) u(topic, partition, position)
 WHERE s.consumer_group = $1 AND s.topic = u.topic AND s.partition = u.partition AND s."offset" = u.position
   AND s.done_at IS NULL
