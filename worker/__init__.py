"""oncebox: Kafka delivers at least once; this makes the world act once.

What a handler author needs is here. The rooms behind it, in the direction of their imports:

    cli -> app -> engine -> rules
    ledger (Postgres decides), kafka (Kafka delivers), filter (Redis saves work), observe -> rules

`stack` starts local servers for demo and tests; `testing` is for handler authors. Read `engine/__init__` for a record's
way through the house and `ledger/__init__` for how a claim lives.
"""

from worker.errors import NotExecuted, Reject
from worker.rules.context import Context, Effect, Reconcile, Transaction, Verdict
from worker.rules.fingerprint import FingerprintRule
from worker.rules.keys import field, fingerprint, header, preset
from worker.rules.record import Record
from worker.rules.registry import Registry
from worker.rules.retries import Retries
from worker.rules.scopes import Scope

__all__ = [
    "Context",
    "Effect",
    "FingerprintRule",
    "NotExecuted",
    "Reconcile",
    "Record",
    "Registry",
    "Reject",
    "Retries",
    "Scope",
    "Transaction",
    "Verdict",
    "field",
    "fingerprint",
    "header",
    "preset",
]
