"""For the tests of handlers: deliver records, let processes die, and look at what happened.

    async def test_charge():
        async with Box(registry) as box:
            first = await box.deliver(charge, {"delivery_id": "d1", "amount_cents": 5})
            again = await box.redeliver(first)
            assert (first.outcome, again.outcome) == ("executed", "replayed")
            await box.deliver(charge, {"delivery_id": "d2", "amount_cents": 5}, crash="inside_effect")
            assert box.entry(charge, key="d2").state == "unknown"
            [redelivered] = await box.restart()
            assert redelivered.outcome == "parked" and box.effects.count(charge, key="d2") == 1

Reconcilers are asked as in production when time passes (`await box.advance("1h")`), and what they say settles entries.
In a box runs the engine of production, on a ledger in memory that passes the same suite as Postgres. The shortest form
needs no box: `await charge.deliver({...}, headers={...})`; importing this package gives handlers that method.

Everything happens in the test's own event loop, so handlers and tests may share fakes, events and clients. While a call
of the box is awaited the loop's time is virtual: it jumps to the next timer whenever nothing else can happen, for the
handler, the engine and the test alike. What that means:

- `time.time()` and `time.monotonic()` stay real; `asyncio.sleep` and `asyncio.timeout` are virtual.
- Threads started through the loop (plain handlers, `asyncio.to_thread`) are waited for in real time. Threads that the
  loop does not know of are not.
- A handler with sockets open gets 20 real milliseconds per wait before time jumps: fake what answers more slowly.
- A death stops the engine's tasks where they stand. A thread that runs on, or a task that a handler started beside
  itself, is not stopped.
- The loop must be asyncio's own, which is what pytest-asyncio uses; not uvloop.
"""

from worker.testing.box import Box
from worker.testing.clock import VirtualClock
from worker.testing.delivered import Delivered, EntryView
from worker.testing.deliveries import CrashPoint
from worker.testing.effects import Effects, Entered
from worker.testing.memory.database import MemoryDatabase, MemoryTransaction, Statement
from worker.testing.memory.ledger import MemoryLedger
from worker.testing.memory.tables import Tables
from worker.testing.shortcut import deliver

__all__ = [
    "Box",
    "CrashPoint",
    "Delivered",
    "Effects",
    "Entered",
    "EntryView",
    "MemoryDatabase",
    "MemoryLedger",
    "MemoryTransaction",
    "Statement",
    "Tables",
    "VirtualClock",
    "deliver",
]
