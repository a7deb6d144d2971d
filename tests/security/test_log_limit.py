"""A broker that is away may not fill the log."""

import logging

from worker.kafka.quiet import LOGGERS, RateLimit, quieten


def test_a_flood_is_cut_counted_and_told_with_the_next_line() -> None:
    now = 0.0
    limit = RateLimit(lines=3, period=10, clock=lambda: now)
    logger = logging.getLogger("a flood")

    def passes(text: str, *values: object) -> str | None:
        record = logger.makeRecord(logger.name, logging.ERROR, "file", 7, text, values, None)
        return record.getMessage() if limit.filter(record) else None

    shown = [passes("node %s is away", number) for number in range(12_000)]
    assert [line for line in shown if line] == [f"node {number} is away" for number in range(3)]
    assert passes("something else") == "something else"
    now = 10.0
    assert passes("node %s is away", 1) == "node 1 is away (11997 more like this were not shown)"
    assert passes("node %s is away", 2) == "node 2 is away"


def test_it_is_put_on_once() -> None:
    before = {name: list(logging.getLogger(name).filters) for name in LOGGERS}
    try:
        quieten()
        quieten()
        for name in LOGGERS:
            assert len([one for one in logging.getLogger(name).filters if isinstance(one, RateLimit)]) == 1
    finally:
        for name, filters in before.items():
            logging.getLogger(name).filters[:] = filters
