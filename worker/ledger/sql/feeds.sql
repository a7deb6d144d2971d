-- name: write_feeds
-- The first worker of a group decides where each partition begins; later ones find its decision.
-- $1 group  $2 topic  $3 partitions  $4 offsets
INSERT INTO oncebox.feeds (consumer_group, topic, partition, start_offset)
SELECT $1, $2, u.partition, u.start_offset
  FROM unnest($3::int[], $4::bigint[]) u(partition, start_offset)
 WHERE NOT EXISTS (SELECT 1 FROM oncebox.feeds f WHERE f.consumer_group = $1 AND f.topic = $2)
 ORDER BY u.partition
ON CONFLICT (consumer_group, topic, partition) DO NOTHING

-- name: read_feeds
-- $1 group  $2 topic
SELECT partition, start_offset FROM oncebox.feeds WHERE consumer_group = $1 AND topic = $2

-- name: write_sample
-- Progress of feeds, after Kafka acknowledged the watermarks. $1 group  $2 topics  $3 partitions  $4 ends  $5 watermarks
INSERT INTO oncebox.samples (consumer_group, topic, partition, end_offset, watermark)
SELECT $1, u.topic, u.partition, u.end_offset, u.watermark
  FROM unnest($2::text[], $3::int[], $4::bigint[], $5::bigint[]) u(topic, partition, end_offset, watermark)
ON CONFLICT (consumer_group, topic, partition, at) DO NOTHING

-- name: read_watermarks
-- How far a group has come on a topic, as stored. $1 group  $2 topic
SELECT partition, max(watermark) FROM oncebox.samples WHERE consumer_group = $1 AND topic = $2 GROUP BY partition

-- name: forgotten
-- Below which offset everything was finished longer ago than a TTL, by any group. $1 topic  $2 ttl in seconds
SELECT partition, max(watermark) FROM oncebox.samples
 WHERE topic = $1 AND at < clock_timestamp() - $2::float8 * interval '1 second' GROUP BY partition
