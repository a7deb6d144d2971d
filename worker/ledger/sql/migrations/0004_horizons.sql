-- How far log time has come, what pruning may forget, and how long the rest is kept.

ALTER TABLE oncebox.operations ADD COLUMN audit_ttl interval, ADD COLUMN horizon timestamptz;
COMMENT ON COLUMN oncebox.operations.audit_ttl IS 'How long a pruned entry stays in the history, without its result; null: not at all.';
COMMENT ON COLUMN oncebox.operations.horizon IS 'The latest horizon any prune used: entries that expired before may be gone.';

ALTER TABLE oncebox.feeds ALTER COLUMN start_offset DROP NOT NULL,
  ADD COLUMN topic_id uuid,
  ADD COLUMN registered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  ADD COLUMN held_at bigint,
  ADD COLUMN go_on_at bigint;
COMMENT ON COLUMN oncebox.feeds.topic_id IS 'Kafka''s id of the topic that was read; another one under the same name is another log.';
COMMENT ON COLUMN oncebox.feeds.registered_at IS 'Since when somebody means to read it; from then on it holds pruning back until it is sampled.';
COMMENT ON COLUMN oncebox.feeds.held_at IS 'Where a held partition stands.';
COMMENT ON COLUMN oncebox.feeds.go_on_at IS 'Where an operator lets a held partition go on; workers take it within seconds.';

ALTER TABLE oncebox.samples ADD COLUMN highest bigint;
COMMENT ON COLUMN oncebox.samples.highest IS 'The highest watermark of the feed until then: rewinding does not undo what was finished. Null: that of this row.';

CREATE TABLE oncebox.prunes (
  operation int NOT NULL,
  topic     text NOT NULL,
  partition int NOT NULL,
  topic_id  uuid NOT NULL,
  below     bigint NOT NULL,
  PRIMARY KEY (operation, topic, partition, topic_id)
);
COMMENT ON TABLE oncebox.prunes IS 'Positions whose entries may have been pruned, written before the first row goes; a record there without an entry is not run.';
COMMENT ON COLUMN oncebox.prunes.operation IS 'Number of the operation.';
COMMENT ON COLUMN oncebox.prunes.topic IS 'The topic it reads.';
COMMENT ON COLUMN oncebox.prunes.partition IS 'The partition.';
COMMENT ON COLUMN oncebox.prunes.topic_id IS 'Kafka''s id of the topic; zero where it could not be read.';
COMMENT ON COLUMN oncebox.prunes.below IS 'Entries of records below this offset may be gone.';

ALTER TABLE oncebox.history ADD COLUMN keep_until timestamptz;
COMMENT ON COLUMN oncebox.history.keep_until IS 'When the row may be deleted; null: as long as the setting keep_history says.';
CREATE INDEX history_kept ON oncebox.history (keep_until) WHERE keep_until IS NOT NULL;
CREATE INDEX history_at ON oncebox.history (at) WHERE keep_until IS NULL;
