-- Least privilege for those who use a ledger: a worker, an operator, a reader.
--
--   psql "$DATABASE_URL" -f deploy/grants.sql                                    for the schema oncebox
--   PGOPTIONS='-c oncebox.schema=billing' psql "$DATABASE_URL" -f deploy/grants.sql   for another
--
-- Run it as the owner of the schema, after every `oncebox migrate`; repeating it is harmless. The roles are called
-- <schema>_worker, <schema>_operator and <schema>_reader (or as oncebox.worker, oncebox.operator and oncebox.reader say),
-- cannot log in, and are made if they are not there. Give them to users:  GRANT oncebox_worker TO payments;
-- Making roles takes CREATEROLE; where somebody else has made them, owning the schema is enough.
--
--   worker    `oncebox run`, `sweep`: everything a claim needs; may not change tables, and may not act as an operator
--   operator  all of that, and `keys`, `dlq`, `replay`, `jobs`, `feeds`, `pause`, `resume`, `skip`, each written to the audit
--   reader    looks at tables and views with psql, without payloads, results and the key of the filter; changes nothing
--
-- Tables of your own that transactional handlers write need grants of your own.
DO $grants$
DECLARE
  place    text := coalesce(nullif(current_setting('oncebox.schema', true), ''), 'oncebox');
  worker   text := coalesce(nullif(current_setting('oncebox.worker', true), ''), place || '_worker');
  operator text := coalesce(nullif(current_setting('oncebox.operator', true), ''), place || '_operator');
  reader   text := coalesce(nullif(current_setting('oncebox.reader', true), ''), place || '_reader');
  role     text;
  missing  text;
  line     record;
BEGIN
  IF to_regnamespace(quote_ident(place)) IS NULL THEN
    RAISE EXCEPTION 'there is no schema %: run `oncebox migrate` first', place;
  END IF;
  FOREACH role IN ARRAY ARRAY[worker, operator, reader] LOOP
    IF NOT EXISTS (SELECT 1 FROM pg_roles r WHERE r.rolname = role) THEN
      EXECUTE format('CREATE ROLE %I NOLOGIN', role);
    END IF;
    -- What an earlier version of this file granted and this one does not; nobody sees the moment in between.
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM %I', place, role);
    EXECUTE format('REVOKE ALL ON ALL SEQUENCES IN SCHEMA %I FROM %I', place, role);
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', place, role);
  END LOOP;
  IF NOT pg_has_role(operator, worker, 'MEMBER') THEN
    EXECUTE format('GRANT %I TO %I', worker, operator);
  END IF;

  CREATE TEMPORARY TABLE oncebox_grants (name text, for_worker text, for_operator text, hidden text[]) ON COMMIT DROP;
  INSERT INTO oncebox_grants VALUES
    -- name, what a worker may, what an operator may besides, columns that a reader does not see (null: the whole table)
    ('ledger',               'SELECT',                         NULL,                     NULL),
    ('operations',           'SELECT, INSERT, UPDATE',         NULL,                     '{}'),
    ('topics',               'SELECT, INSERT, UPDATE',         NULL,                     '{}'),
    ('sessions',             'SELECT, INSERT, UPDATE, DELETE', NULL,                     '{}'),
    ('open_claims',          'SELECT, INSERT, UPDATE, DELETE', NULL,                     '{}'),
    ('entries',              'SELECT, INSERT, UPDATE, DELETE', NULL,                     '{result}'),
    ('doubts',               'SELECT, INSERT, UPDATE, DELETE', NULL,                     '{}'),
    ('parked',               'SELECT, INSERT, UPDATE, DELETE', NULL,                     '{key,value,headers}'),
    ('history',              'SELECT, INSERT, DELETE',         NULL,                     '{body}'),
    ('feeds',                'SELECT, INSERT, UPDATE',         NULL,                     '{}'),
    ('samples',              'SELECT, INSERT, UPDATE, DELETE', NULL,                     '{}'),
    ('prunes',               'SELECT, INSERT, UPDATE',         NULL,                     '{}'),
    ('duties',               'SELECT, INSERT, UPDATE',         NULL,                     '{}'),
    ('migrations',           'SELECT',                         NULL,                     '{}'),
    -- What operators do. A worker reads their orders and, after its time, forgets an act; it cannot write one.
    ('audit',                'SELECT, DELETE',                 'INSERT',                 '{}'),
    ('pauses',               'SELECT',                         'INSERT, UPDATE, DELETE', '{}'),
    ('skips',                'SELECT, UPDATE',                 'INSERT, DELETE',         '{}'),
    ('jobs',                 NULL,                             'SELECT, INSERT, UPDATE', '{}'),
    ('job_spans',            NULL,                             'SELECT, INSERT, UPDATE', '{}'),
    ('handled_letters',      NULL,                             'SELECT, INSERT',         '{}'),
    -- Views for people.
    ('readable_entries',     NULL,                             'SELECT',                 '{}'),
    ('readable_doubts',      NULL,                             'SELECT',                 '{}'),
    ('readable_parked',      NULL,                             'SELECT',                 '{kafka_key,headers}'),
    ('readable_sessions',    NULL,                             'SELECT',                 '{}'),
    ('readable_open_claims', NULL,                             'SELECT',                 '{}'),
    ('readable_pauses',      NULL,                             'SELECT',                 '{}');

  SELECT string_agg(c.relname, ', ' ORDER BY c.relname) INTO missing
    FROM pg_class c
   WHERE c.relnamespace = quote_ident(place)::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
     AND NOT c.relispartition AND c.relname NOT IN (SELECT name FROM oncebox_grants);
  IF missing IS NOT NULL THEN
    RAISE EXCEPTION 'no line for %: this file belongs to another version of oncebox than the schema', missing;
  END IF;

  FOR line IN
    SELECT g.*, (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_attribute a
                  WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> ALL (g.hidden)) AS seen
      FROM oncebox_grants g
      JOIN pg_class c ON c.relname = g.name AND c.relnamespace = quote_ident(place)::regnamespace
  LOOP
    IF line.for_worker IS NOT NULL THEN
      EXECUTE format('GRANT %s ON %I.%I TO %I', line.for_worker, place, line.name, worker);
    END IF;
    IF line.for_operator IS NOT NULL THEN
      EXECUTE format('GRANT %s ON %I.%I TO %I', line.for_operator, place, line.name, operator);
    END IF;
    IF line.hidden IS NOT NULL THEN
      EXECUTE format('GRANT SELECT (%s) ON %I.%I TO %I', line.seen, place, line.name, reader);
    END IF;
  END LOOP;
  EXECUTE format('GRANT USAGE ON SEQUENCE %I.fences TO %I', place, worker);
END
$grants$;
