-- name: create_job
-- $1 kind  $2 topic  $3 plan as JSON  $4 actor  $5 session  $6 runner
INSERT INTO oncebox.jobs (kind, topic, plan, actor, session, runner) VALUES ($1, $2, $3::text::jsonb, $4, $5, $6)
RETURNING id

-- name: create_job_spans
-- What a job reads, in the transaction that creates it. $1 job  $2 partitions  $3 starts  $4 ends
INSERT INTO oncebox.job_spans (job, partition, start_offset, position, end_offset)
SELECT $1, u.partition, u.first, u.first, u.past
  FROM unnest($2::int[], $3::bigint[], $4::bigint[]) u(partition, first, past)

-- name: resume_job
-- stopped, failed, cancelled, or running in a session that is over -> running, for a new process.
-- No row: it is done, or its session lives. $1 job  $2 session  $3 runner
UPDATE oncebox.jobs j
   SET state = 'running', session = $2, runner = $3, ended_at = NULL, cancel_at = NULL, error = NULL, updated_at = clock_timestamp()
 WHERE j.id = $1 AND j.state <> 'done'
   AND NOT (j.state = 'running' AND EXISTS (SELECT 1 FROM oncebox.sessions s WHERE s.id = j.session
                                               AND s.ended_at IS NULL AND s.lease_until > clock_timestamp()))
RETURNING j.id

-- name: keep_progress
-- How far a job has come; never backwards. No row: another process has taken it over.
-- $1 job  $2 runner  $3 session  $4 counts as JSON  $5 partitions  $6 positions
WITH j AS (
  UPDATE oncebox.jobs SET counts = $4::text::jsonb, session = $3, updated_at = clock_timestamp()
   WHERE id = $1 AND runner = $2 AND state = 'running'
  RETURNING id, cancel_at IS NOT NULL AS cancelled
), p AS (
  UPDATE oncebox.job_spans s SET position = greatest(s.position, u.position)
    FROM unnest($5::int[], $6::bigint[]) u(partition, position), j
   WHERE s.job = j.id AND s.partition = u.partition
)
SELECT cancelled FROM j

-- name: end_job
-- running -> done, stopped, failed or cancelled. No row: another process has taken it over.
-- $1 job  $2 runner  $3 state  $4 report as JSON  $5 error
UPDATE oncebox.jobs SET state = $3, report = $4::text::jsonb, error = $5, ended_at = clock_timestamp(), updated_at = clock_timestamp()
 WHERE id = $1 AND runner = $2 AND state = 'running'
RETURNING id

-- name: list_jobs
-- The newest jobs. $1 most rows
SELECT j.id, j.kind, j.state, j.topic, j.actor, j.started_at, j.updated_at, j.ended_at, j.cancel_at, j.counts::text AS counts,
       j.plan::text AS plan, j.report::text AS report, j.error, j.session, s.host, s.pid,
       coalesce(s.ended_at IS NULL AND s.lease_until > clock_timestamp(), false) AS lives
  FROM oncebox.jobs j LEFT JOIN oncebox.sessions s ON s.id = j.session
 ORDER BY j.id DESC LIMIT $1

-- name: read_job
-- $1 job
SELECT j.id, j.kind, j.state, j.topic, j.actor, j.started_at, j.updated_at, j.ended_at, j.cancel_at, j.counts::text AS counts,
       j.plan::text AS plan, j.report::text AS report, j.error, j.session, s.host, s.pid,
       coalesce(s.ended_at IS NULL AND s.lease_until > clock_timestamp(), false) AS lives
  FROM oncebox.jobs j LEFT JOIN oncebox.sessions s ON s.id = j.session
 WHERE j.id = $1

-- name: read_job_spans
-- $1 jobs
SELECT job, partition, start_offset, position, end_offset FROM oncebox.job_spans WHERE job = ANY($1::bigint[]) ORDER BY job, partition

-- name: cancel_job
-- Asks a running job to stop; one whose process is gone is cancelled at once. No row: it is not running. $1 job
UPDATE oncebox.jobs j
   SET cancel_at = clock_timestamp(), updated_at = clock_timestamp(),
       state = CASE WHEN l.lives THEN j.state ELSE 'cancelled' END,
       ended_at = CASE WHEN l.lives THEN j.ended_at ELSE clock_timestamp() END
  FROM (SELECT EXISTS (SELECT 1 FROM oncebox.jobs x JOIN oncebox.sessions s ON s.id = x.session
                        WHERE x.id = $1 AND s.ended_at IS NULL AND s.lease_until > clock_timestamp()) AS lives OFFSET 0) l
 WHERE j.id = $1 AND j.state = 'running'
RETURNING j.state

-- name: parked_in_spans
-- What of these parts of a topic is parked now, by reason. $1 topic  $2 partitions  $3 starts  $4 ends
SELECT p.reason, count(*) AS n
  FROM oncebox.parked p, unnest($2::int[], $3::bigint[], $4::bigint[]) u(partition, first, past)
 WHERE p.topic = $1 AND p.partition = u.partition AND p."offset" >= u.first AND p."offset" < u.past
 GROUP BY p.reason
