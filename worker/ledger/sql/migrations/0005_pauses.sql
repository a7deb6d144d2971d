-- What operators hold back or skip, views with names instead of numbers, and what every column means.

CREATE TABLE oncebox.pauses (
  what   text NOT NULL CHECK (what IN ('handler', 'topic')),
  name   text NOT NULL,
  since  timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor  text NOT NULL,
  reason text NOT NULL CHECK (reason <> ''),
  PRIMARY KEY (what, name)
);
COMMENT ON TABLE oncebox.pauses IS 'Handlers and topics whose records are held without a claim; workers read this every second.';
COMMENT ON COLUMN oncebox.pauses.what IS 'handler or topic';
COMMENT ON COLUMN oncebox.pauses.name IS 'A handler as scope/operation, or a topic.';
COMMENT ON COLUMN oncebox.pauses.since IS 'When an operator paused it.';
COMMENT ON COLUMN oncebox.pauses.actor IS 'Who paused it.';
COMMENT ON COLUMN oncebox.pauses.reason IS 'Why; the same words as in the audit.';

CREATE TABLE oncebox.skips (
  consumer_group text NOT NULL,
  topic          text NOT NULL,
  partition      int NOT NULL,
  "offset"       bigint NOT NULL,
  move           boolean NOT NULL DEFAULT false,
  asked_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor          text NOT NULL,
  reason         text NOT NULL CHECK (reason <> ''),
  done_at        timestamptz,
  PRIMARY KEY (consumer_group, topic, partition, "offset")
);
COMMENT ON TABLE oncebox.skips IS 'Records that an operator wants dead-lettered as skipped, and places where held partitions go on; workers read this every second.';
COMMENT ON COLUMN oncebox.skips.consumer_group IS 'The group that skips it; others read it as ever.';
COMMENT ON COLUMN oncebox.skips.topic IS 'The topic of the record.';
COMMENT ON COLUMN oncebox.skips.partition IS 'The partition of the record.';
COMMENT ON COLUMN oncebox.skips."offset" IS 'The record, or, where move is true, the place from which a held partition is read on.';
COMMENT ON COLUMN oncebox.skips.move IS 'Whether the partition was held: then everything below the offset is skipped, and nothing is dead-lettered.';
COMMENT ON COLUMN oncebox.skips.asked_at IS 'When the operator asked for it.';
COMMENT ON COLUMN oncebox.skips.actor IS 'Who asked for it.';
COMMENT ON COLUMN oncebox.skips.reason IS 'Why; the same words as in the audit.';
COMMENT ON COLUMN oncebox.skips.done_at IS 'When a worker had done it; null until then.';
CREATE INDEX skips_open ON oncebox.skips (consumer_group) WHERE done_at IS NULL;

CREATE INDEX doubts_since ON oncebox.doubts (since, id);
CREATE INDEX audit_subject ON oncebox.audit (subject, at);

CREATE VIEW oncebox.readable_doubts AS
SELECT d.id, o.scope, o.operation, encode(e.tenant, 'escape') AS tenant, encode(e.key, 'escape') AS key, d.fence, d.since,
       d.quiet_until, d.quiet_until <= clock_timestamp() AS quiet, d.due_at AS next_probe, d.probes, d.reported_at,
       e.attempts, e.crashes, e.held, e.error
  FROM oncebox.doubts d
  LEFT JOIN oncebox.entries e ON e.id = d.id
  LEFT JOIN oncebox.operations o ON o.id = d.operation;
COMMENT ON VIEW oncebox.readable_doubts IS 'Entries in doubt with names instead of numbers, for people.';

CREATE VIEW oncebox.readable_parked AS
SELECT p.id, o.scope, o.operation, p.topic, p.partition, p."offset", p.reason, p.parked_at, p.due_at,
       to_timestamp(p.timestamp_ms / 1000.0) AS record_time,
       CASE p.timestamp_type WHEN 0 THEN 'CreateTime' WHEN 1 THEN 'LogAppendTime' ELSE 'NoTimestamp' END AS timestamp_type,
       encode(p.key, 'escape') AS kafka_key, octet_length(p.value) AS value_bytes, convert_from(p.headers, 'UTF8') AS headers
  FROM oncebox.parked p
  LEFT JOIN oncebox.operations o ON o.id = p.operation;
COMMENT ON VIEW oncebox.readable_parked IS 'Parked records with names instead of numbers and sizes instead of payloads, for people.';

CREATE VIEW oncebox.readable_sessions AS
SELECT s.id, s.role, s.host, s.pid, s.version, s.started_at, s.lease, s.lease_until, s.steady_since, s.ended_at,
       CASE WHEN s.ended_at IS NOT NULL THEN 'ended' WHEN s.lease_until < clock_timestamp() THEN 'lapsed' ELSE 'alive' END AS state,
       (SELECT count(*) FROM oncebox.open_claims c WHERE c.session = s.id) AS open_claims
  FROM oncebox.sessions s;
COMMENT ON VIEW oncebox.readable_sessions IS 'Sessions, whether each lives, and how many claim statements of it are open, for people.';

CREATE VIEW oncebox.readable_open_claims AS
SELECT c.fence, c.session, s.host, s.pid,
       CASE WHEN s.id IS NULL THEN 'gone' WHEN s.ended_at IS NOT NULL THEN 'ended' WHEN s.lease_until < clock_timestamp() THEN 'lapsed' ELSE 'alive' END AS session_state,
       cardinality(c.ids) AS entries, c.ids
  FROM oncebox.open_claims c
  LEFT JOIN oncebox.sessions s ON s.id = c.session;
COMMENT ON VIEW oncebox.readable_open_claims IS 'Claim statements that are not finished, with the process that made them, for people.';

CREATE VIEW oncebox.readable_pauses AS
SELECT p.what, p.name, p.since, clock_timestamp() - p.since AS paused_for, p.actor, p.reason FROM oncebox.pauses p;
COMMENT ON VIEW oncebox.readable_pauses IS 'What is paused, for how long, by whom and why, for people.';

COMMENT ON TABLE oncebox.migrations IS 'Which steps of the schema have been applied.';
COMMENT ON COLUMN oncebox.migrations.number IS 'The number of the step.';
COMMENT ON COLUMN oncebox.migrations.name IS 'What the step is called.';
COMMENT ON COLUMN oncebox.migrations.applied_at IS 'When it was applied.';
COMMENT ON COLUMN oncebox.ledger.only_row IS 'Always true: there is one row.';
COMMENT ON COLUMN oncebox.ledger.id IS 'Tells this ledger from every other.';
COMMENT ON COLUMN oncebox.ledger.filter_key IS 'Secret: authenticates what the Redis filter says about this ledger.';
COMMENT ON COLUMN oncebox.operations.id IS 'The number that entries carry.';
COMMENT ON COLUMN oncebox.operations.scope IS 'The scope of the handler.';
COMMENT ON COLUMN oncebox.operations.operation IS 'What the handler does, by name.';
COMMENT ON COLUMN oncebox.operations.kind IS '1 external, 2 transactional, 3 repeatable, as last registered; each entry carries its own';
COMMENT ON COLUMN oncebox.operations.identity IS 'How keys are computed: format, key rule, tenant rule, a digest of the secret where keys are private.';
COMMENT ON COLUMN oncebox.operations.ttl IS 'How long entries are kept after the claim.';
COMMENT ON COLUMN oncebox.operations.quiet IS 'Timeout plus effect horizon: with the lease, how long after a doubt arose the effect may still happen.';
COMMENT ON COLUMN oncebox.operations.groups IS 'Consumer groups that registered the operation.';
COMMENT ON COLUMN oncebox.topics.id IS 'The number that entries carry.';
COMMENT ON COLUMN oncebox.topics.name IS 'The name of the topic.';
COMMENT ON COLUMN oncebox.sessions.id IS 'The session that open claims name.';
COMMENT ON COLUMN oncebox.sessions.role IS 'What the process does: run, replay, redrive, sweep.';
COMMENT ON COLUMN oncebox.sessions.host IS 'The machine or pod it runs on.';
COMMENT ON COLUMN oncebox.sessions.pid IS 'Its process id there.';
COMMENT ON COLUMN oncebox.sessions.version IS 'The version of oncebox it runs.';
COMMENT ON COLUMN oncebox.sessions.started_at IS 'When the session was opened.';
COMMENT ON COLUMN oncebox.sessions.lease IS 'How long a renewal keeps it alive.';
COMMENT ON COLUMN oncebox.sessions.lease_until IS 'Lapsed from then on, unless it is renewed; others may then end it.';
COMMENT ON COLUMN oncebox.sessions.steady_since IS 'Since when no renewal came late; only a session that is steady for a whole lease may end others.';
COMMENT ON COLUMN oncebox.sessions.ended_at IS 'Ended for ever; its claims are settled next.';
COMMENT ON COLUMN oncebox.open_claims.fence IS 'The fence of the claim statement; its entries carry it.';
COMMENT ON COLUMN oncebox.open_claims.session IS 'The session that made the claim, or carried it over.';
COMMENT ON COLUMN oncebox.open_claims.ids IS 'The entries offered; those with another fence were not won, or were claimed again since.';
COMMENT ON COLUMN oncebox.entries.fence IS 'Of the newest claim; rises with every claim, and only its holder may finish it.';
COMMENT ON COLUMN oncebox.entries.expires_at IS 'From then on the entry may be pruned, once log time has passed it, too.';
COMMENT ON COLUMN oncebox.entries.source_offset IS 'Offset of the record that claimed the key first.';
COMMENT ON COLUMN oncebox.entries.operation IS 'Number of the operation.';
COMMENT ON COLUMN oncebox.entries.source_topic IS 'Number of the topic of the record that claimed the key first.';
COMMENT ON COLUMN oncebox.entries.source_partition IS 'Partition of the record that claimed the key first.';
COMMENT ON COLUMN oncebox.entries.attempts IS 'Runs that provably executed nothing.';
COMMENT ON COLUMN oncebox.entries.crashes IS 'Workers that died while they had the claim.';
COMMENT ON COLUMN oncebox.entries.content_type IS '0 no result, 1 JSON, 2 text, 3 bytes';
COMMENT ON COLUMN oncebox.entries.format IS 'Version of the fingerprint.';
COMMENT ON COLUMN oncebox.entries.id IS 'Digest of scope, operation, tenant and key; keyed where keys are private.';
COMMENT ON COLUMN oncebox.entries.fingerprint IS 'Digest of the payload that claimed the key first; null where the scope compares none.';
COMMENT ON COLUMN oncebox.entries.tenant IS 'The tenant; null without one, or where keys are private.';
COMMENT ON COLUMN oncebox.entries.key IS 'The key as it was read; null where keys are private.';
COMMENT ON COLUMN oncebox.entries.result IS 'What the handler returned; every replay gives these bytes.';
COMMENT ON COLUMN oncebox.entries.result_code IS 'The code of a rejection.';
COMMENT ON COLUMN oncebox.entries.due_at IS 'When a failed entry may be claimed again.';
COMMENT ON COLUMN oncebox.entries.failed_at IS 'When it first failed or came into doubt.';
COMMENT ON COLUMN oncebox.entries.error IS 'What went wrong last.';
COMMENT ON COLUMN oncebox.doubts.id IS 'The entry.';
COMMENT ON COLUMN oncebox.doubts.operation IS 'Number of its operation.';
COMMENT ON COLUMN oncebox.doubts.fence IS 'The claim in doubt; verdicts are about this one.';
COMMENT ON COLUMN oncebox.doubts.since IS 'When the doubt arose.';
COMMENT ON COLUMN oncebox.doubts.quiet_until IS 'Until then the effect may still happen; not_executed is believed afterwards only.';
COMMENT ON COLUMN oncebox.doubts.due_at IS 'When the reconciler is asked next.';
COMMENT ON COLUMN oncebox.doubts.probes IS 'How often the reconciler was asked.';
COMMENT ON COLUMN oncebox.doubts.reported_at IS 'When the entry was dead-lettered because nobody could settle it.';
COMMENT ON COLUMN oncebox.parked.id IS 'The entry the record waits for, or the digest of its position.';
COMMENT ON COLUMN oncebox.parked.topic IS 'Where the record stands in Kafka.';
COMMENT ON COLUMN oncebox.parked.partition IS 'Where the record stands in Kafka.';
COMMENT ON COLUMN oncebox.parked."offset" IS 'Where the record stands in Kafka.';
COMMENT ON COLUMN oncebox.parked.operation IS 'Number of the operation that will run it; null if no handler was found.';
COMMENT ON COLUMN oncebox.parked.reason IS 'unknown (waits for a verdict), hold, retry, or what could not be written.';
COMMENT ON COLUMN oncebox.parked.parked_at IS 'When it was parked.';
COMMENT ON COLUMN oncebox.parked.due_at IS 'When it is tried; null while something else must happen first.';
COMMENT ON COLUMN oncebox.parked.timestamp_ms IS 'The record''s timestamp.';
COMMENT ON COLUMN oncebox.parked.timestamp_type IS '0 CreateTime, 1 LogAppendTime';
COMMENT ON COLUMN oncebox.parked.key IS 'The record''s Kafka key.';
COMMENT ON COLUMN oncebox.parked.value IS 'The record''s value.';
COMMENT ON COLUMN oncebox.parked.headers IS 'The record''s headers: JSON pairs of a name and hexadecimal bytes.';
COMMENT ON COLUMN oncebox.history.id IS 'The entry.';
COMMENT ON COLUMN oncebox.history.at IS 'When it happened.';
COMMENT ON COLUMN oncebox.history.event IS 'What happened: a result refused by fence, a probe, a verdict, the expiry.';
COMMENT ON COLUMN oncebox.history.fence IS 'The claim it is about.';
COMMENT ON COLUMN oncebox.history.detail IS 'What is known about it, in words.';
COMMENT ON COLUMN oncebox.history.body IS 'The result it came with, if any.';
COMMENT ON COLUMN oncebox.feeds.consumer_group IS 'The consumer group.';
COMMENT ON COLUMN oncebox.feeds.topic IS 'The topic it reads.';
COMMENT ON COLUMN oncebox.feeds.partition IS 'The partition.';
COMMENT ON COLUMN oncebox.feeds.start_offset IS 'Where the group began, by the decision of its first worker.';
COMMENT ON COLUMN oncebox.feeds.operations IS 'Operations that read the topic.';
COMMENT ON COLUMN oncebox.feeds.held_since IS 'Since when the partition is not read and waits for an operator; null while it is read.';
COMMENT ON COLUMN oncebox.feeds.held_why IS 'Why it is not read.';
COMMENT ON COLUMN oncebox.feeds.retired_at IS 'When an operator declared that nobody reads it any more.';
COMMENT ON COLUMN oncebox.samples.consumer_group IS 'The consumer group.';
COMMENT ON COLUMN oncebox.samples.topic IS 'The topic.';
COMMENT ON COLUMN oncebox.samples.partition IS 'The partition.';
COMMENT ON COLUMN oncebox.samples.at IS 'When the sample was taken.';
COMMENT ON COLUMN oncebox.samples.end_offset IS 'Where the log ended then.';
COMMENT ON COLUMN oncebox.samples.watermark IS 'What the group had committed: everything below was finished.';
COMMENT ON COLUMN oncebox.duties.duty IS 'What is to be done.';
COMMENT ON COLUMN oncebox.duties.operation IS 'For which operation; 0 for all.';
COMMENT ON COLUMN oncebox.duties.due IS 'When somebody does it next.';
COMMENT ON COLUMN oncebox.audit.id IS 'In the order in which acts were written.';
COMMENT ON COLUMN oncebox.audit.at IS 'When.';
COMMENT ON COLUMN oncebox.audit.actor IS 'Who: ONCEBOX_ACTOR, or user and host.';
COMMENT ON COLUMN oncebox.audit.action IS 'The command.';
COMMENT ON COLUMN oncebox.audit.reason IS 'Why, in the operator''s words.';
COMMENT ON COLUMN oncebox.audit.old_state IS 'The state before.';
COMMENT ON COLUMN oncebox.audit.new_state IS 'The state after.';
COMMENT ON COLUMN oncebox.audit.detail IS 'What else there is to know.';
