-- What operators did.

CREATE TABLE oncebox.audit (
  id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at        timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor     text NOT NULL,
  action    text NOT NULL,
  subject   text NOT NULL,
  reason    text NOT NULL CHECK (reason <> ''),
  old_state text,
  new_state text,
  detail    text
);
COMMENT ON TABLE oncebox.audit IS 'Every change an operator made: who, when, what, why, and the state before and after.';
COMMENT ON COLUMN oncebox.audit.subject IS 'What was changed: an entry, a feed, a topic, a handler, a job, a dead letter.';
CREATE INDEX audit_at ON oncebox.audit (at);
