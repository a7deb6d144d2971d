-- Doubts that were reported are looked at by nobody: only open ones are searched by their due time.

CREATE INDEX doubts_open ON oncebox.doubts (operation, due_at) WHERE reported_at IS NULL;
DROP INDEX oncebox.doubts_due;
COMMENT ON COLUMN oncebox.doubts.due_at IS 'When a reconciler is asked next, or the doubt is reported; moved ahead when someone takes it.';
COMMENT ON COLUMN oncebox.doubts.probes IS 'How often a reconciler was asked about this claim.';
COMMENT ON COLUMN oncebox.doubts.reported_at IS 'When its dead letter was acknowledged; the entry stays unknown until someone settles it.';

ALTER TABLE oncebox.parked ADD COLUMN detail text;
COMMENT ON COLUMN oncebox.parked.detail IS 'What the dead letter says that could not be written; null for records that wait for something else.';
COMMENT ON COLUMN oncebox.parked.reason IS 'unknown, retry, hold; unwritable:REASON and too_large:REASON are dead letters or results that are owed.';
