-- What of a result is kept, so that an operator's verdict keeps no more than a handler's result would.
ALTER TABLE oncebox.operations
  ADD COLUMN results text NOT NULL DEFAULT 'bytes' CHECK (results IN ('bytes', 'digest', 'nothing'));
COMMENT ON COLUMN oncebox.operations.results IS 'What of a result is kept: its bytes, its digest, or nothing.';
