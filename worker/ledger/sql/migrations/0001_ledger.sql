-- The ledger: who may run, what was done, what is in doubt.
-- Every statement names the schema as oncebox; another schema name is put in its place when the text is loaded.
-- Only columns that never change after the claim (or move rarely) are indexed: completions stay heap-only updates.

CREATE TABLE oncebox.ledger (
  only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  id         uuid NOT NULL DEFAULT gen_random_uuid(),
  filter_key bytea NOT NULL
);
COMMENT ON TABLE oncebox.ledger IS 'One row: which ledger this is, and the key that authenticates entries of the Redis filter.';

CREATE SEQUENCE oncebox.fences INCREMENT 1000 START 1000;
COMMENT ON SEQUENCE oncebox.fences IS 'Each value opens a block of 1000 fences for one process; fences are never reused.';

CREATE TABLE oncebox.operations (
  id         int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  scope      text NOT NULL,
  operation  text NOT NULL,
  kind       smallint NOT NULL CHECK (kind IN (1, 2, 3)),
  identity   text NOT NULL,
  ttl        interval NOT NULL,
  quiet      interval NOT NULL,
  groups     text[] NOT NULL DEFAULT '{}',
  UNIQUE (scope, operation)
);
COMMENT ON TABLE oncebox.operations IS 'What handlers do, by name; identity is how their keys are computed, quiet is timeout plus effect horizon.';

CREATE TABLE oncebox.topics (
  id   int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL UNIQUE
);
COMMENT ON TABLE oncebox.topics IS 'Numbers for topic names, so that an entry carries four bytes instead of a name.';

CREATE TABLE oncebox.sessions (
  id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  role         text NOT NULL,
  host         text NOT NULL,
  pid          int NOT NULL,
  version      text NOT NULL,
  started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  lease        interval NOT NULL,
  lease_until  timestamptz NOT NULL,
  steady_since timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_at     timestamptz
);
COMMENT ON TABLE oncebox.sessions IS 'Running processes that claim or settle; a claim lives as long as its session.';
CREATE INDEX sessions_lapsing ON oncebox.sessions (lease_until) WHERE ended_at IS NULL;

CREATE TABLE oncebox.open_claims (
  fence   bigint PRIMARY KEY,
  session bigint NOT NULL,
  ids     uuid[] NOT NULL
);
COMMENT ON TABLE oncebox.open_claims IS 'One row per claim statement: its fence, its session and the entries it offered to claim.';
CREATE INDEX open_claims_session ON oncebox.open_claims (session);

CREATE TABLE oncebox.entries (
  fence            bigint NOT NULL,
  expires_at       timestamptz NOT NULL,
  source_offset    bigint,
  operation        int NOT NULL,
  source_topic     int,
  source_partition int,
  held             int NOT NULL DEFAULT 0 CHECK (held >= 0),
  state            smallint NOT NULL CHECK (state IN (1, 2, 3, 4)),
  kind             smallint NOT NULL CHECK (kind IN (1, 2, 3)),
  attempts         smallint NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  crashes          smallint NOT NULL DEFAULT 0 CHECK (crashes >= 0),
  result_status    smallint CHECK (result_status IN (1, 2, 3)),
  content_type     smallint,
  format           smallint NOT NULL,
  id               uuid PRIMARY KEY,
  fingerprint      bytea,
  tenant           bytea,
  key              bytea,
  result           bytea,
  result_code      text,
  due_at           timestamptz,
  failed_at        timestamptz,
  error            text,
  CHECK ((state = 2) = (result_status IS NOT NULL)),
  CHECK (state <> 3 OR due_at IS NOT NULL)
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05,
        autovacuum_analyze_scale_factor = 0.05);
COMMENT ON TABLE oncebox.entries IS 'One row per idempotency key of an operation: its state, its fence and its result.';
COMMENT ON COLUMN oncebox.entries.state IS '1 in_progress, 2 completed, 3 failed_retryable, 4 unknown';
COMMENT ON COLUMN oncebox.entries.kind IS '1 external, 2 transactional, 3 repeatable; decides what happens when the session ends';
COMMENT ON COLUMN oncebox.entries.held IS 'How many parked records and owed results still need this entry; above 0 it is not pruned.';
COMMENT ON COLUMN oncebox.entries.result_status IS '1 ok, 2 rejected, 3 unstorable';
CREATE INDEX entries_expiring ON oncebox.entries (operation, expires_at);

CREATE TABLE oncebox.doubts (
  id          uuid PRIMARY KEY,
  operation   int NOT NULL,
  fence       bigint NOT NULL,
  since       timestamptz NOT NULL,
  quiet_until timestamptz NOT NULL,
  due_at      timestamptz NOT NULL,
  probes      int NOT NULL DEFAULT 0,
  reported_at timestamptz
);
COMMENT ON TABLE oncebox.doubts IS 'Entries in state unknown, written with the transition; not_executed is believed only after quiet_until.';
CREATE INDEX doubts_due ON oncebox.doubts (operation, due_at);

CREATE TABLE oncebox.parked (
  id             uuid NOT NULL,
  topic          text NOT NULL,
  partition      int NOT NULL,
  "offset"       bigint NOT NULL,
  operation      int,
  reason         text NOT NULL,
  parked_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  due_at         timestamptz,
  timestamp_ms   bigint NOT NULL,
  timestamp_type smallint NOT NULL,
  key            bytea,
  value          bytea,
  headers        bytea NOT NULL,
  PRIMARY KEY (id, topic, partition, "offset")
);
COMMENT ON TABLE oncebox.parked IS 'Records that cannot be finished now, byte for byte; due_at is when to try, null while something else must happen first.';
CREATE INDEX parked_due ON oncebox.parked (operation, due_at) WHERE due_at IS NOT NULL;

CREATE TABLE oncebox.history (
  id     uuid NOT NULL,
  at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  event  text NOT NULL,
  fence  bigint,
  detail text,
  body   bytea
);
COMMENT ON TABLE oncebox.history IS 'What happened to an entry besides its states: results refused by fence, probes, verdicts.';
CREATE INDEX history_entry ON oncebox.history (id);

CREATE TABLE oncebox.feeds (
  consumer_group text NOT NULL,
  topic          text NOT NULL,
  partition      int NOT NULL,
  start_offset   bigint NOT NULL,
  operations     int[] NOT NULL DEFAULT '{}',
  held_since     timestamptz,
  held_why       text,
  retired_at     timestamptz,
  PRIMARY KEY (consumer_group, topic, partition)
);
COMMENT ON TABLE oncebox.feeds IS 'Partitions that operations read, by consumer group, and where each began.';

CREATE TABLE oncebox.samples (
  consumer_group text NOT NULL,
  topic          text NOT NULL,
  partition      int NOT NULL,
  at             timestamptz NOT NULL DEFAULT clock_timestamp(),
  end_offset     bigint NOT NULL,
  watermark      bigint NOT NULL,
  PRIMARY KEY (consumer_group, topic, partition, at)
);
COMMENT ON TABLE oncebox.samples IS 'Progress of each feed after Kafka acknowledged it; TTL runs on these, never on record timestamps.';

CREATE TABLE oncebox.duties (
  duty      text NOT NULL,
  operation int NOT NULL,
  due       timestamptz NOT NULL,
  PRIMARY KEY (duty, operation)
);
COMMENT ON TABLE oncebox.duties IS 'Work of the janitor, taken by moving due ahead; harmless if two processes take one.';

INSERT INTO oncebox.ledger (filter_key)
SELECT decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex');

CREATE VIEW oncebox.readable_entries AS
SELECT e.id, o.scope, o.operation, encode(e.tenant, 'escape') AS tenant, encode(e.key, 'escape') AS key,
       CASE e.state WHEN 1 THEN 'in_progress' WHEN 2 THEN 'completed' WHEN 3 THEN 'failed_retryable' ELSE 'unknown' END AS state,
       CASE e.kind WHEN 1 THEN 'external' WHEN 2 THEN 'transactional' ELSE 'repeatable' END AS kind,
       CASE e.result_status WHEN 1 THEN 'ok' WHEN 2 THEN 'rejected' WHEN 3 THEN 'unstorable' END AS result_status,
       e.fence, e.attempts, e.crashes, e.held, e.due_at, e.expires_at, e.error,
       t.name AS source_topic, e.source_partition, e.source_offset, octet_length(e.result) AS result_bytes
  FROM oncebox.entries e
  LEFT JOIN oncebox.operations o ON o.id = e.operation
  LEFT JOIN oncebox.topics t ON t.id = e.source_topic;
COMMENT ON VIEW oncebox.readable_entries IS 'Entries with names instead of numbers, for people.';
