"""Postgres decides: the ledger holds who may run, what was done, and what is in doubt.

How a claim lives, in the order of its dangers:

1. A worker draws fences ahead and offers keys in one statement that also holds its own session row. Keys it wins are
   its own from the commit on; the others are looked up in a second statement, because the first one's snapshot is
   older than the commits it waited for.
2. A call without an answer may have committed, may still commit, or may not. Reading decides nothing. The keys are
   offered again under a new fence: either the row is absent and the new claim inserts it (a late commit of the old one
   then does nothing), or it carries the lost fence and is retaken by an UPDATE that names that fence. An answer that
   the caller will not hear, because something after it broke, is as lost as one that never came.
3. Finishing names the fence and the state it leaves. Repeating it is harmless; zero rows means that someone else
   decided, or that an earlier try did: the row tells which. Each claim is told to be over once, because the open-claims
   row of its batch goes when the last one is; without that row nobody could settle the rest.
4. A worker that stops renewing is ended once and for ever, and only then settled, one claim statement's worth at a
   time. What it had running is carried over if it comes back first, and waits for its late result if not; what it
   had claimed and not started may not start any more, unless it was carried over.
"""
