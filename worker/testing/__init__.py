"""For the tests of handlers: deliver, crash, restart, assert."""

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
