-- name: describe_server
-- One row: what `oncebox check` shows and judges.
SELECT current_setting('server_version')     AS version,
       current_setting('fsync')              AS fsync,
       current_setting('full_page_writes')   AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('max_connections')    AS max_connections
