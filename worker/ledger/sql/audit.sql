-- name: write_audit
-- One act of an operator, in the transaction of the change itself: neither is there without the other.
-- $1 actor  $2 action  $3 subject  $4 reason  $5 old state  $6 new state  $7 detail
INSERT INTO oncebox.audit (actor, action, subject, reason, old_state, new_state, detail)
VALUES ($1, $2, $3, $4, $5, $6, $7)

-- name: read_audit
-- The newest acts about a subject. $1 subject  $2 most rows
SELECT at, actor, action, subject, reason, old_state, new_state, detail
  FROM oncebox.audit WHERE subject = $1 ORDER BY at DESC LIMIT $2
