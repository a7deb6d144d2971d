"""Every metric, declared once: the collector, the page for operators and the tests read this table and nothing else.

Labels are bounded: topics, partitions, operations and fixed words; never a key, an offset or a name made up by a pod.
Figures about the whole database are the same from every worker: aggregate them with `max`, all others with `sum`.
"""

from dataclasses import dataclass
from typing import Final, Literal

Type = Literal["counter", "gauge", "histogram", "info"]
About = Literal["worker", "database", "process"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric as it is scraped; `about` is what its figures describe."""

    name: str
    type: Type
    help: str
    labels: tuple[str, ...] = ()
    about: About = "worker"
    buckets: tuple[float, ...] = ()

    @property
    def family(self) -> str:
        """The name without the suffix that its type adds."""
        return self.name.removesuffix("_total" if self.type == "counter" else "_info")


_HANDLER: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_DELAY: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 21600.0, 86400.0)
_STORE: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)

METRICS: Final[tuple[Metric, ...]] = (
    # What became of records.
    Metric(
        "oncebox_records_total",
        "counter",
        "Records finished, by outcome: executed, rejected, replayed, misuse, parked, dead_lettered. "
        "A parked record counts again when it is finished. Operation is none for records without a handler.",
        ("topic", "operation", "outcome"),
    ),
    Metric(
        "oncebox_duplicates_absorbed_total",
        "counter",
        "Redeliveries that were answered from the stored result instead of running the handler again.",
        ("topic", "operation"),
    ),
    Metric(
        "oncebox_dead_letters_total",
        "counter",
        "Dead letters written, by reason. Operation is none for records without a handler.",
        ("topic", "operation", "reason"),
    ),
    Metric(
        "oncebox_publish_errors_total",
        "counter",
        "Results, replies and dead letters that were not acknowledged; each is tried again, or its record parked.",
        ("topic",),
    ),
    Metric(
        "oncebox_record_delay_seconds",
        "histogram",
        "From a record's timestamp to its outcome being durable. "
        "Sampled: the last record of each fetch and partition. Producers' clocks count in.",
        ("topic",),
        buckets=_DELAY,
    ),
    # Claims.
    Metric(
        "oncebox_claims_total",
        "counter",
        "Answers to offered keys, by result: created (the handler may run), retried (it may run again), replay, "
        "in_progress (waits for another claim), misuse, unknown (in doubt), delayed (its retry is not due), "
        "exhausted (its attempts or crashes are used up).",
        ("result",),
    ),
    Metric("oncebox_claims_open", "gauge", "Claims this worker holds now: what a crash would leave to be settled."),
    Metric("oncebox_claims_retaken_total", "counter", "Claims taken back after a call whose answer was lost."),
    Metric("oncebox_claims_strayed_total", "counter", "Claims of broken calls that committed late, and were released."),
    Metric(
        "oncebox_claims_settled_total",
        "counter",
        "Claims of ended sessions settled by this worker, by the entry's new state: failed_retryable, unknown.",
        ("state",),
    ),
    Metric(
        "oncebox_late_results_total",
        "counter",
        "Results that came after their claim was settled, or long after it was made: accepted, or refused because "
        "another decision stands (a possible double effect).",
        ("result",),
    ),
    # Handlers.
    Metric(
        "oncebox_process_duration_seconds",
        "histogram",
        "How long handlers ran, every execution, however it ended. Without waiting for a thread or a connection.",
        ("operation",),
        buckets=_HANDLER,
    ),
    Metric("oncebox_handlers_running", "gauge", "Handlers running now.", ("operation",)),
    Metric("oncebox_handlers_overdue", "gauge", "Handlers that run on although their timeout asked them to stop."),
    Metric(
        "oncebox_handler_timeouts_total",
        "counter",
        "Handlers that were asked to stop by their timeout.",
        ("operation",),
    ),
    Metric(
        "oncebox_attempts_failed_total",
        "counter",
        "Executions that failed provably without an effect; retried after their backoff.",
        ("operation",),
    ),
    Metric(
        "oncebox_doubts_total",
        "counter",
        "Entries that became unknown while this worker ran their handler.",
        ("operation",),
    ),
    Metric(
        "oncebox_circuit_open", "gauge", "1 while a handler fails so often that its records are held.", ("operation",)
    ),
    Metric("oncebox_circuit_opened_total", "counter", "How often a handler's circuit opened.", ("operation",)),
    Metric("oncebox_records_held", "gauge", "Records held back by an open circuit.", ("operation",)),
    # In flight.
    Metric("oncebox_records_in_flight", "gauge", "Records read and not finished.", ("topic",)),
    Metric(
        "oncebox_records_waiting",
        "gauge",
        "Records that wait for another claim of their key, or for the due time of a short retry.",
    ),
    # The group.
    Metric("oncebox_partitions_assigned", "gauge", "Partitions this worker reads.", ("topic",)),
    Metric("oncebox_partitions_held", "gauge", "Of these, partitions held until an operator decides.", ("topic",)),
    Metric(
        "oncebox_consumer_lag_records",
        "gauge",
        "Offsets between the group's committed watermark and the end of the partition.",
        ("topic", "partition"),
    ),
    Metric(
        "oncebox_consumer_lag_seconds",
        "gauge",
        "Age of the oldest unfinished record by its timestamp; if none was read yet, how long there has been a lag.",
        ("topic", "partition"),
    ),
    Metric("oncebox_rebalances_total", "counter", "Assignments given to this worker, the first one included."),
    Metric(
        "oncebox_commit_failures_total",
        "counter",
        "Commits of offsets that did not succeed: refused (the group is rebalanced), failed, timed_out.",
        ("reason",),
    ),
    # Postgres and Redis.
    Metric(
        "oncebox_store_duration_seconds",
        "histogram",
        "Round trips to a store, one observation per statement or request, however many records it carries: "
        "postgres by statement (transaction: several statements together), redis by reads and writes.",
        ("store", "op"),
        buckets=_STORE,
    ),
    Metric(
        "oncebox_store_errors_total",
        "counter",
        "Round trips that broke or timed out. Those to postgres are repeated, those to redis are done without.",
        ("store", "op"),
    ),
    Metric("oncebox_filter_lookups_total", "counter", "Keys the Redis filter was asked for."),
    Metric("oncebox_filter_hits_total", "counter", "Of these, duplicates it answered without Postgres."),
    # Sessions and duties of this worker.
    Metric("oncebox_sessions_ended_total", "counter", "Lapsed sessions of other processes ended by this worker."),
    Metric("oncebox_sessions_replaced_total", "counter", "Times this worker lost its session and opened another."),
    Metric(
        "oncebox_duty_delays_total",
        "counter",
        "Rounds of the janitor that could not be finished, and are tried again.",
        ("duty",),
    ),
    Metric(
        "oncebox_reconciles_total",
        "counter",
        "Words about entries in doubt that came to this worker: scheduled (its reconciler was asked), unknown, failed "
        "(asked again later), executed and not_executed (settled, also by context.settle), given_up (dead-lettered).",
        ("operation", "result"),
    ),
    Metric("oncebox_pruned_entries_total", "counter", "Expired entries deleted by this worker.", ("operation",)),
    # Health.
    Metric("oncebox_ready", "gauge", "1 while /readyz answers 200."),
    Metric(
        "oncebox_check_ok",
        "gauge",
        "1 while a check of /readyz passes: running, session, postgres, kafka, group.",
        ("check",),
    ),
    Metric("oncebox_log_lines_suppressed_total", "counter", "Repeated log lines that were counted, not written."),
    Metric("oncebox_build_info", "info", "Which version runs.", ("version", "python")),
    # The whole database, from one cheap query every few seconds.
    Metric("oncebox_unknown_entries", "gauge", "Entries in doubt.", ("operation",), "database"),
    Metric(
        "oncebox_unknown_oldest_age_seconds",
        "gauge",
        "How long the oldest entry has been in doubt; 0 without any.",
        ("operation",),
        "database",
    ),
    Metric(
        "oncebox_reconcile_backlog",
        "gauge",
        "Entries in doubt whose next probe is due and was not begun.",
        ("operation",),
        "database",
    ),
    Metric(
        "oncebox_parked_records",
        "gauge",
        "Records kept in Postgres until they can be finished, by reason: unknown, retry, hold, too_large, unwritable, "
        "other. Counted up to 100000.",
        ("operation", "reason"),
        "database",
    ),
    Metric(
        "oncebox_parked_overdue_seconds",
        "gauge",
        "How long the oldest parked record has been due; 0 without any.",
        ("operation",),
        "database",
    ),
    Metric("oncebox_sessions_alive", "gauge", "Sessions inside their lease, by role.", ("role",), "database"),
    Metric("oncebox_sessions_lapsed", "gauge", "Sessions past their lease that nobody has ended yet.", (), "database"),
    Metric(
        "oncebox_ended_session_claims",
        "gauge",
        "Open claim statements of ended sessions: what is still to be settled.",
        (),
        "database",
    ),
    Metric(
        "oncebox_prune_backlog_seconds",
        "gauge",
        "How long ago the oldest entry of an operation expired; grows while pruning is held back.",
        ("operation",),
        "database",
    ),
    Metric(
        "oncebox_feed_behind_seconds",
        "gauge",
        "Age of a feed's log time: how long ago its group had read all there was. "
        "The largest of an operation's feeds holds its pruning.",
        ("group", "topic", "partition"),
        "database",
    ),
    Metric(
        "oncebox_database_figures_age_seconds",
        "gauge",
        "How old the figures about the whole database are.",
        (),
        "database",
    ),
    # The process, by the usual names.
    Metric("process_cpu_seconds_total", "counter", "Total user and system CPU time spent in seconds.", (), "process"),
    Metric("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.", (), "process"),
    Metric("process_virtual_memory_bytes", "gauge", "Virtual memory size in bytes.", (), "process"),
    Metric(
        "process_start_time_seconds",
        "gauge",
        "Start time of the process since unix epoch in seconds.",
        (),
        "process",
    ),
    Metric("process_open_fds", "gauge", "Number of open file descriptors.", (), "process"),
    Metric("process_max_fds", "gauge", "Maximum number of open file descriptors.", (), "process"),
)

BY_NAME: Final = {metric.name: metric for metric in METRICS}
