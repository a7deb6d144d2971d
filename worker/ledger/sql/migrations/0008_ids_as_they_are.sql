-- The ids of a batch are random bytes: the server should not spend time on trying to compress them.
ALTER TABLE oncebox.open_claims ALTER COLUMN ids SET STORAGE EXTERNAL;
