-- Long work that operators start: replays and redrives, how far each has come, and which dead letters are dealt with.

CREATE TABLE oncebox.jobs (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind       text NOT NULL CHECK (kind IN ('replay', 'file', 'redrive')),
  state      text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'stopped', 'failed', 'cancelled')),
  topic      text NOT NULL,
  plan       jsonb NOT NULL,
  actor      text NOT NULL,
  session    bigint NOT NULL,
  runner     uuid NOT NULL,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_at   timestamptz,
  cancel_at  timestamptz,
  counts     jsonb NOT NULL DEFAULT '{}',
  report     jsonb,
  error      text,
  CHECK ((state = 'running') = (ended_at IS NULL))
);
COMMENT ON TABLE oncebox.jobs IS 'Replays and redrives: what was asked for, by whom, how far it has come, what became of it.';
COMMENT ON COLUMN oncebox.jobs.topic IS 'What is read: a topic, or file:<digest> for the lines of a file.';
COMMENT ON COLUMN oncebox.jobs.plan IS 'The options it was started with; a resumed job keeps them.';
COMMENT ON COLUMN oncebox.jobs.session IS 'The session it runs or ran under; a running job whose session is over was interrupted.';
COMMENT ON COLUMN oncebox.jobs.runner IS 'The process that may write progress; resuming the job replaces it.';
COMMENT ON COLUMN oncebox.jobs.cancel_at IS 'When an operator asked it to stop; its process looks every second.';
COMMENT ON COLUMN oncebox.jobs.counts IS 'Finished records by outcome.';

CREATE TABLE oncebox.job_spans (
  job          bigint NOT NULL REFERENCES oncebox.jobs ON DELETE CASCADE,
  partition    int NOT NULL,
  start_offset bigint NOT NULL,
  position     bigint NOT NULL,
  end_offset   bigint NOT NULL,
  PRIMARY KEY (job, partition),
  CHECK (start_offset <= position AND position <= end_offset)
);
COMMENT ON TABLE oncebox.job_spans IS 'The part of each partition that a job reads; everything below position is finished.';

CREATE TABLE oncebox.handled_letters (
  topic        text NOT NULL,
  partition    int NOT NULL,
  "offset"     bigint NOT NULL,
  timestamp_ms bigint NOT NULL,
  action       text NOT NULL CHECK (action IN ('redriven', 'discarded')),
  at           timestamptz NOT NULL DEFAULT clock_timestamp(),
  job          bigint,
  PRIMARY KEY (topic, partition, "offset", timestamp_ms)
);
COMMENT ON TABLE oncebox.handled_letters IS 'Dead letters that an operator redrove or discarded: Kafka cannot delete one record. Who and why is in the audit.';
COMMENT ON COLUMN oncebox.handled_letters.timestamp_ms IS 'Of the letter: a topic that was created anew uses the same offsets for other letters.';
COMMENT ON COLUMN oncebox.jobs.id IS 'Its number, as the commands take it.';
COMMENT ON COLUMN oncebox.jobs.kind IS 'replay of a topic, of a file, or redrive of dead letters.';
COMMENT ON COLUMN oncebox.jobs.state IS 'running, done, stopped (can be resumed), failed or cancelled.';
COMMENT ON COLUMN oncebox.jobs.actor IS 'Who started it.';
COMMENT ON COLUMN oncebox.jobs.started_at IS 'When it was started.';
COMMENT ON COLUMN oncebox.jobs.updated_at IS 'When its progress was written last.';
COMMENT ON COLUMN oncebox.jobs.ended_at IS 'When it ended; null while it runs.';
COMMENT ON COLUMN oncebox.jobs.report IS 'What it told at its end.';
COMMENT ON COLUMN oncebox.jobs.error IS 'What made it fail.';
COMMENT ON COLUMN oncebox.job_spans.job IS 'The job.';
COMMENT ON COLUMN oncebox.job_spans.partition IS 'The partition, or 0 for a file.';
COMMENT ON COLUMN oncebox.job_spans.start_offset IS 'The first offset of the window.';
COMMENT ON COLUMN oncebox.job_spans.position IS 'Everything of the window below it is finished; a resumed job goes on here.';
COMMENT ON COLUMN oncebox.job_spans.end_offset IS 'The first offset behind the window, fixed at the start.';
COMMENT ON COLUMN oncebox.handled_letters.topic IS 'The dead-letter topic.';
COMMENT ON COLUMN oncebox.handled_letters.partition IS 'Its partition.';
COMMENT ON COLUMN oncebox.handled_letters."offset" IS 'The offset of the letter.';
COMMENT ON COLUMN oncebox.handled_letters.action IS 'redriven or discarded.';
COMMENT ON COLUMN oncebox.handled_letters.at IS 'When.';
COMMENT ON COLUMN oncebox.handled_letters.job IS 'The redrive that did it, if any.';
