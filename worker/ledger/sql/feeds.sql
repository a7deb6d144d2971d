-- name: register_feeds
-- Somebody means to read these partitions for these operations: from now on each holds pruning back until it is sampled.
-- An operation is never taken off a feed: its old records may still be there. $1 group  $2 topic  $3 partitions
-- $4 operations
INSERT INTO oncebox.feeds AS f (consumer_group, topic, partition, operations)
SELECT $1, $2, u.partition, $4::int[] FROM unnest($3::int[]) u(partition) ORDER BY u.partition
ON CONFLICT (consumer_group, topic, partition) DO UPDATE
   SET operations = ARRAY(SELECT DISTINCT x FROM unnest(f.operations || excluded.operations) x ORDER BY x),
       retired_at = NULL

-- name: write_feeds
-- The first worker of a group decides where each partition begins; later ones find its decision.
-- $1 group  $2 topic  $3 partitions  $4 offsets
INSERT INTO oncebox.feeds AS f (consumer_group, topic, partition, start_offset)
SELECT $1, $2, u.partition, u.start_offset
  FROM unnest($3::int[], $4::bigint[]) u(partition, start_offset)
 WHERE NOT EXISTS (SELECT 1 FROM oncebox.feeds x
                    WHERE x.consumer_group = $1 AND x.topic = $2 AND x.start_offset IS NOT NULL)
 ORDER BY u.partition
ON CONFLICT (consumer_group, topic, partition) DO UPDATE SET start_offset = excluded.start_offset
 WHERE f.start_offset IS NULL

-- name: read_feeds
-- A partition that is missing appeared after the decision. $1 group  $2 topic
SELECT partition, start_offset FROM oncebox.feeds
 WHERE consumer_group = $1 AND topic = $2 AND start_offset IS NOT NULL

-- name: known_places
-- What is stored about the partitions of a group's topic. $1 group  $2 topic
SELECT f.partition, f.topic_id, f.go_on_at,
       (SELECT coalesce(s.highest, s.watermark) FROM oncebox.samples s
         WHERE s.consumer_group = f.consumer_group AND s.topic = f.topic AND s.partition = f.partition
         ORDER BY s.at DESC LIMIT 1) AS watermark
  FROM oncebox.feeds f
 WHERE f.consumer_group = $1 AND f.topic = $2

-- name: place_feeds
-- Workers have found, or given up, the places of partitions. An operator's decision is over once it was followed.
-- $1 group  $2 topic  $3 topic id  $4 partitions  $5 why held (null: read)  $6 places of held ones  $7 decisions followed
UPDATE oncebox.feeds f
   SET topic_id = CASE WHEN u.why IS NULL THEN coalesce($3::uuid, f.topic_id) ELSE f.topic_id END,
       held_why = u.why, held_at = u.held_at,
       held_since = CASE WHEN u.why IS NOT NULL THEN coalesce(f.held_since, clock_timestamp()) END,
       go_on_at = CASE WHEN f.go_on_at = u.followed THEN NULL ELSE f.go_on_at END
  FROM unnest($4::int[], $5::text[], $6::bigint[], $7::bigint[]) u(partition, why, held_at, followed)
 WHERE f.consumer_group = $1 AND f.topic = $2 AND f.partition = u.partition

-- name: decided_places
-- Held partitions that an operator lets go on. $1 group
SELECT topic, partition FROM oncebox.feeds WHERE consumer_group = $1 AND go_on_at IS NOT NULL

-- name: read_moment
-- The database's clock, read before Kafka is asked where a log ends: what is produced later is no part of the sample.
SELECT clock_timestamp()

-- name: write_sample
-- Progress of feeds, after Kafka acknowledged the watermarks. $1 group  $2 moment  $3 topics  $4 partitions  $5 ends
-- $6 watermarks
INSERT INTO oncebox.samples (consumer_group, topic, partition, at, end_offset, watermark, highest)
SELECT $1, u.topic, u.partition, $2::timestamptz, u.end_offset, u.watermark,
       greatest(u.watermark, (SELECT coalesce(s.highest, s.watermark) FROM oncebox.samples s
                               WHERE s.consumer_group = $1 AND s.topic = u.topic AND s.partition = u.partition
                               ORDER BY s.at DESC LIMIT 1))
  FROM unnest($3::text[], $4::int[], $5::bigint[], $6::bigint[]) u(topic, partition, end_offset, watermark)
ON CONFLICT (consumer_group, topic, partition, at) DO NOTHING

-- name: revive_feeds
-- What is sampled is read, whatever an operator thought. $1 group  $2 topics  $3 partitions
UPDATE oncebox.feeds f SET retired_at = NULL
  FROM unnest($2::text[], $3::int[]) u(topic, partition)
 WHERE f.consumer_group = $1 AND f.topic = u.topic AND f.partition = u.partition AND f.retired_at IS NOT NULL

-- name: forgotten
-- Below which offsets entries may be gone: finished longer ago than the TTL, by the samples of any feed of the operation,
-- or below what a prune of it has passed. $1 topic  $2 operations  $3 topic id (null: not known)
SELECT o.id AS operation, f.partition, max(x.below) AS below
  FROM oncebox.operations o
  JOIN oncebox.feeds f ON f.topic = $1 AND o.id = ANY(f.operations)
   AND (f.topic_id IS NULL OR $3::uuid IS NULL OR f.topic_id = $3::uuid)
 CROSS JOIN LATERAL (SELECT coalesce(s.highest, s.watermark) AS below FROM oncebox.samples s
                      WHERE s.consumer_group = f.consumer_group AND s.topic = f.topic AND s.partition = f.partition
                        AND s.at < clock_timestamp() - o.ttl
                      ORDER BY s.at DESC LIMIT 1) x
 WHERE o.id = ANY($2::int[])
 GROUP BY o.id, f.partition
UNION ALL
SELECT p.operation, p.partition, p.below FROM oncebox.prunes p
 WHERE p.topic = $1 AND p.operation = ANY($2::int[])
   AND (p.topic_id = '00000000-0000-0000-0000-000000000000' OR $3::uuid IS NULL OR p.topic_id = $3::uuid)

-- name: standing_feeds
-- Feeds with their newest sample and their log time: the time of the newest sample whose end the watermark has reached.
-- $1 operation (null: of all)
SELECT f.consumer_group, f.topic, f.partition, f.operations, f.topic_id, f.registered_at, f.held_since, f.held_why,
       f.held_at, f.go_on_at, f.retired_at, n.at AS sampled_at, n.watermark, n.end_offset,
       extract(epoch FROM clock_timestamp() - n.at)::float8 AS sample_age,
       (SELECT max(s.at) FROM oncebox.samples s
         WHERE s.consumer_group = f.consumer_group AND s.topic = f.topic AND s.partition = f.partition
           AND s.end_offset <= n.watermark) AS log_time
  FROM oncebox.feeds f
  LEFT JOIN LATERAL (SELECT s.at, s.watermark, s.end_offset FROM oncebox.samples s
                      WHERE s.consumer_group = f.consumer_group AND s.topic = f.topic AND s.partition = f.partition
                      ORDER BY s.at DESC LIMIT 1) n ON true
 WHERE $1::int IS NULL OR $1::int = ANY(f.operations)
 ORDER BY f.consumer_group, f.topic, f.partition

-- name: retire_feed
-- Nobody reads it any more, or a held one goes on elsewhere. No row: there is no such feed.
-- $1 group  $2 topic  $3 partition  $4 where a held one goes on  $5 the topic's id
UPDATE oncebox.feeds
   SET retired_at = clock_timestamp(), go_on_at = $4, topic_id = coalesce($5::uuid, topic_id)
 WHERE consumer_group = $1 AND topic = $2 AND partition = $3
RETURNING partition

-- name: forget_samples
-- The log was made anew: what was finished in the old one says nothing. $1 group  $2 topic  $3 partition
DELETE FROM oncebox.samples WHERE consumer_group = $1 AND topic = $2 AND partition = $3

-- name: cut_samples
-- The log was cut: what comes at these offsets next was never seen. $1 topic  $2 partition  $3 end of the log
UPDATE oncebox.samples SET watermark = least(watermark, $3::bigint), highest = least(coalesce(highest, watermark), $3::bigint)
 WHERE topic = $1 AND partition = $2 AND coalesce(highest, watermark) > $3::bigint

-- name: cut_prunes
-- As cut_samples. $1 topic  $2 partition  $3 end of the log
UPDATE oncebox.prunes SET below = $3::bigint WHERE topic = $1 AND partition = $2 AND below > $3::bigint
