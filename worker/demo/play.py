"""The play: two workers, a sender, a kill -9 half-way, a replacement, and the wait until everything is settled."""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass

import asyncpg

from worker.demo.audit import Auditor, Look
from worker.demo.messages import TOPICS, Delivery, Message, Operation
from worker.demo.screen import Screen
from worker.demo.sender import Place, Sender
from worker.demo.stage import Stage
from worker.demo.tally import Tally, tally
from worker.demo.workers import Worker
from worker.errors import OnceboxError
from worker.ledger.migrate import migrate
from worker.settings import load_settings

_LOOK_EVERY = 0.2
_BURST_SECONDS = 1.5
_TRICKLE_SECONDS = 6.0
_STUCK_SECONDS = 45.0


@dataclass(frozen=True, slots=True)
class Ending:
    """What is left to tell when all workers have stopped."""

    tallies: Mapping[Operation, Tally]
    doubtful: list[tuple[Message, bool]]  # and whether its effect is there


class Play:
    """One performance. Closing it leaves no worker behind."""

    def __init__(self, stage: Stage, screen: Screen, messages: list[Message], deliveries: list[Delivery]) -> None:
        self._stage = stage
        self._screen = screen
        self._messages = messages
        self._deliveries = deliveries
        self._workers: list[Worker] = []

    async def perform(self) -> Ending:
        """From the first worker to the account; raises when something is stuck or a worker dies by itself."""
        await migrate(load_settings(None, self._stage.environment).database)
        connection = await asyncpg.connect(self._stage.environment["DATABASE_URL"])
        auditor = Auditor(self._stage, connection)
        sender = Sender(self._stage.kafka_settings, self._stage.run)
        try:
            await self._open()
            with self._screen:
                await self._run(auditor, sender)
            return await self._account(auditor)
        finally:
            for worker in self._workers:
                worker.end()
            auditor.close()
            await connection.close()

    async def _open(self) -> None:
        self._start()
        self._start()
        deadline = asyncio.get_running_loop().time() + _STUCK_SECONDS
        for worker in self._workers:
            while not worker.has_partitions():
                if asyncio.get_running_loop().time() > deadline:
                    raise OnceboxError(f"worker {worker.number} was given no partition\n  {worker.last_words()}")
                await asyncio.sleep(0.1)
        self._screen.say("both workers have joined the group and share the partitions")

    async def _run(self, auditor: Auditor, sender: Sender) -> None:
        count, unique = len(self._deliveries), len(self._messages)
        self._screen.say(f"sending {unique} messages, each 1 to 3 times: {count} in all")
        sending = asyncio.create_task(self._send(sender))
        try:
            victim, patience = self._workers[0], _Patience()
            while True:
                look = await auditor.look()
                self._screen.show(sender.acknowledged, look, self._workers)
                for worker in self._workers:
                    worker.must_run()
                if not victim.killed and look.effects >= unique / 2:
                    await self._kill(victim, auditor)
                if sending.done():
                    sending.result()
                    if victim.killed and look.reached(sender.ends) and not look.unsettled:
                        return
                    if patience.is_over(look):
                        raise OnceboxError(self._stuck(look, sender.ends))
                await asyncio.sleep(_LOOK_EVERY)
        finally:
            sending.cancel()

    async def _send(self, sender: Sender) -> None:
        """First a backlog, then what comes by and by: busy and quiet workers meet a rebalance in different places."""
        backlog = 2 * len(self._deliveries) // 3
        await sender.send(self._deliveries[:backlog], seconds=_BURST_SECONDS)
        await sender.send(self._deliveries[backlog:], seconds=_TRICKLE_SECONDS)

    async def _kill(self, victim: Worker, auditor: Auditor) -> None:
        """Kill it in the middle of a charge if it can be caught at one within a second, otherwise wherever it is."""
        until = asyncio.get_running_loop().time() + 1
        while asyncio.get_running_loop().time() < until:
            if await auditor.is_charging(victim.pid):
                # Before the money is taken or after: both happen to real workers.
                await asyncio.sleep(random.uniform(0, 0.01))
                break
        victim.kill()
        self._screen.say(f"kill -9 of worker {victim.number} (pid {victim.pid}) in the middle of its work")
        self._start()

    async def _account(self, auditor: Auditor) -> Ending:
        self._screen.say("every record is finished; stopping the workers")
        for worker in self._workers:
            worker.ask_to_stop()
        for worker in self._workers:
            await asyncio.to_thread(worker.wait_stopped)
        tallies: dict[Operation, Tally] = {}
        doubtful = []
        for operation, facts in (await auditor.facts()).items():
            messages = [message for message in self._messages if message.operation == operation]
            deliveries = [delivery for delivery in self._deliveries if delivery.message.operation == operation]
            tallies[operation] = tally(messages, deliveries, facts)
            unknown = {key for key, entry in facts.entries.items() if entry.state == "unknown"}
            doubtful += [(one, facts.effects[one.reference] > 0) for one in messages if one.key in unknown]
        assert set(tallies) == set(TOPICS)
        return Ending(tallies, doubtful)

    def _start(self) -> None:
        worker = Worker(len(self._workers) + 1, self._stage.environment, self._stage.folder)
        self._workers.append(worker)
        self._screen.say(f"worker {worker.number} started (pid {worker.pid})")

    def _stuck(self, look: Look, ends: Mapping[Place, int]) -> str:
        behind = [f"{t}/{p} at {look.committed.get((t, p), 0)} of {end}" for (t, p), end in sorted(ends.items())]
        lines = [
            f"nothing has moved for {_STUCK_SECONDS:g} s, and not everything is finished",
            f"partitions: {', '.join(behind)}",
            f"entries: {dict(look.states)}, parked and due: {look.due}",
        ]
        for worker in self._workers:
            lines.append(f"worker {worker.number} {worker.state}: {worker.last_words()}")
        return "\n  ".join(lines)


class _Patience:
    """How long nothing may move."""

    def __init__(self) -> None:
        self._seen: object = None
        self._since = 0.0

    def is_over(self, look: Look) -> bool:
        now = asyncio.get_running_loop().time()
        seen = (look.finished, look.effects, sorted(look.states.items()), look.due)
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since > _STUCK_SECONDS
