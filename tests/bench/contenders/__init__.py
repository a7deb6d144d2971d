"""Who takes part, and what each leaves to its user."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec

OURS = "oncebox"


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to consume a topic: a process of its own that speaks through its stopwatch."""

    name: str
    what: str
    command: tuple[str, ...]  # module in this folder, and its words
    lacks: str
    completed: str | None = None  # counts the keys it has completed; {schema} is its own
    slow: bool = False  # works through the short topic
    needs: str | None = None  # a package that `make bench` installs
    settings: Mapping[str, str] = field(default_factory=dict)  # of its environment
    redis: bool = False

    @property
    def here(self) -> bool:
        """Whether its package is installed."""
        return self.needs is None or find_spec(self.needs) is not None


ENTRIES = 'SELECT count(*) FROM "{schema}".entries WHERE state = 2'
PROCESSED = 'SELECT count(*) FROM "{schema}".processed WHERE status = 2'
OURS_LACKS = "effects outside Postgres: after a kill they are in doubt until someone looks, never repeated"
TUNED_LACKS = (
    "takeover of a dead worker's claims (its messages are skipped), fencing, payload check, order per key, retries, "
    "stored results"
)

ONCEBOX = Contender(
    OURS,
    "the worker as shipped, key from a payload field",
    ("ours", "placed"),
    OURS_LACKS,
    ENTRIES,
)
ONCEBOX_REDIS = Contender(
    "oncebox+redis",
    "the same with REDIS_URL set; its duplicates are a third pass, the second one filled the filter",
    ("ours", "placed"),
    OURS_LACKS,
    ENTRIES,
    redis=True,
)
ONCEBOX_HEADER = Contender(
    "oncebox-header",
    "the same, key from a header",
    ("ours", "placed"),
    OURS_LACKS,
    ENTRIES,
)
STATEMENTS = Contender(
    "statements",
    "the ledger's claims and completions alone, batches of 500, four at once: the ceiling Postgres sets",
    ("statements",),
    "there is no Kafka and no handler in it",
    ENTRIES,
)
RAW = Contender(
    "raw",
    "aiokafka getmany(500), JSON, commit per batch: the ceiling Kafka sets",
    ("raw",),
    "any deduplication: every redelivery runs again",
)
TUNED = Contender(
    "tuned32",
    "claim INSERT and completion UPDATE per message, 32 in flight, 16 connections, prepared statements",
    ("tuned",),
    TUNED_LACKS,
    PROCESSED,
    slow=True,
)
POOLED = Contender(
    "pooled32",
    "the same two statements per message over asyncpg's own pool of 16, 32 in flight: what most write first",
    ("pooled",),
    TUNED_LACKS,
    PROCESSED,
    slow=True,
)
FASTSTREAM = Contender(
    "faststream",
    "FastStream, 16 workers, default policy, the same two statements over a pool of 16",
    ("faststreams", "fast"),
    f"offsets are committed before the work is done: a crash loses messages; and {TUNED_LACKS}",
    PROCESSED,
    slow=True,
    needs="faststream",
)
FASTSTREAM_CAREFUL = Contender(
    "faststream-careful",
    "FastStream, acknowledged after the work (NACK_ON_ERROR), 8 workers on 8 partitions",
    ("faststreams", "careful"),
    f"no more in flight than partitions; {TUNED_LACKS}",
    PROCESSED,
    slow=True,
    needs="faststream",
)
IDEMKIT = Contender(
    "idemkit",
    "idemkit's consumer and Postgres backend (pool of 20) on aiokafka, 32 in flight",
    ("idemkits",),
    "offset handling and order per key (the caller's loop); effects without a mark: what died in the middle runs again",
    "SELECT count(*) FROM \"{schema}\".idemkit_records WHERE state = 'COMPLETED'",
    slow=True,
    needs="idemkit",
)
DBOS = Contender(
    "dbos",
    "a dbos workflow per message, named by its key, on aiokafka, 32 in flight, pool of 20",
    ("dbos_workflows",),
    "offset handling and order per key (the caller's loop), payload check; made for long workflows, not for this",
    "SELECT count(*) FROM \"{schema}\".workflow_status WHERE status = 'SUCCESS'",
    slow=True,
    needs="dbos",
)
WAITED = Contender(
    OURS,
    "an external handler that waits; 100 handlers at once",
    ("ours", "waited"),
    OURS_LACKS,
    ENTRIES,
    settings={"ONCEBOX_CONCURRENCY": "100"},
)
SLEEPING = Contender(
    "floor",
    "the same waits in bare asyncio, 100 at once",
    ("sleeping",),
    "there is no Kafka and no database in it",
)
RECORDED = Contender(
    OURS,
    "a transactional handler with one INSERT, 16 connections",
    ("ours", "recorded"),
    "nothing: effect and completion commit together",
    'SELECT count(DISTINCT o.id) FROM "{schema}".entries e'
    " JOIN \"{schema}\".orders o ON o.id = convert_from(e.key, 'UTF8') WHERE e.state = 2",
)
INSERTING = Contender(
    "inserting",
    "aiokafka loop with BEGIN, INSERT, COMMIT per message, 16 connections and in flight",
    ("inserting",),
    "any deduplication: every redelivery inserts again",
    'SELECT count(DISTINCT id) FROM "{schema}".orders',
)
ARRIVED = Contender(
    OURS,
    "the worker as shipped, an external handler without an effect",
    ("ours", "arrived"),
    OURS_LACKS,
    ENTRIES,
)
ARRIVING = Contender(
    "arriving",
    "a bare aiokafka consumer, and two bare commits per message",
    ("arriving",),
    "any use of what the two commits say",
    PROCESSED,
)
PRUNED = Contender(
    OURS,
    "the worker as shipped, with samples every second, and a prune in turns",
    ("pruned",),
    OURS_LACKS,
    settings={"ONCEBOX_SAMPLE_EVERY": "1s", "ONCEBOX_PRUNE_EVERY": "1d"},
)
ALL = (
    ONCEBOX, ONCEBOX_REDIS, ONCEBOX_HEADER, STATEMENTS, RAW, TUNED, POOLED, FASTSTREAM, FASTSTREAM_CAREFUL, IDEMKIT,
    DBOS, SLEEPING, INSERTING, ARRIVING,
)  # fmt: skip
