"""Publishing results and dead letters: acknowledged by all replicas, or not at all.

A refusal poisons an idempotent producer: its later sends to that partition fail for ever. So sizes are checked before a
record is sent, and after an error the producer is thrown away.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from worker.errors import OnceboxError
from worker.kafka.bootstrap import explain_bootstrap
from worker.kafka.security import client_options
from worker.kafka.topics import open_topics
from worker.rules.outgoing import Outgoing, TooLarge
from worker.settings import KafkaSettings

Notice = Callable[..., None]
# What a batch adds to one record: its own header, lengths, and the record's attributes.
_OVERHEAD = 200
_LARGEST = 64 * 1024 * 1024


class Publisher:
    """A producer that is opened when there is something to publish, and replaced when it fails."""

    def __init__(self, kafka: KafkaSettings, notice: Notice) -> None:
        self._kafka = kafka
        self._notice = notice
        self._producer: Any = None
        self._opening = asyncio.Lock()
        self._limits: dict[str, int] = {}

    async def publish(self, outgoing: Sequence[Outgoing]) -> list[Exception | None]:
        """Send all and wait for all; per record None, or why it is not known to be written."""
        try:
            producer = await self._open()
            await self._learn_limits({out.topic for out in outgoing})
        except (KafkaError, OnceboxError, TimeoutError) as error:
            return [error] * len(outgoing)
        answers = await asyncio.gather(*(self._send(producer, out) for out in outgoing))
        if any(isinstance(a, KafkaError | TimeoutError) for a in answers):
            await self._drop(producer)
        return list(answers)

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await self._stop(producer)

    async def _send(self, producer: Any, out: Outgoing) -> Exception | None:
        limit = self._limits.get(out.topic)
        if limit is None:
            return OnceboxError(f"topic {out.topic} does not exist, or its settings cannot be read")
        if _size(out) > limit:
            return TooLarge(f"{_size(out)} bytes are more than the {limit} of topic {out.topic}")
        try:
            async with asyncio.timeout(self._kafka.request_timeout.total_seconds() * 2):
                await _send(producer, out)
        except MessageSizeTooLargeError as error:
            self._limits.pop(out.topic, None)
            return TooLarge(str(error))
        except (KafkaError, TimeoutError) as error:
            return error
        return None

    async def _open(self) -> Any:
        async with self._opening:
            if self._producer is None:
                producer = AIOKafkaProducer(
                    **client_options(self._kafka), acks="all", enable_idempotence=True, max_request_size=_LARGEST
                )
                try:
                    async with explain_bootstrap(self._kafka):
                        await producer.start()
                except BaseException:
                    await producer.stop()
                    raise
                self._producer = producer
            return self._producer

    async def _learn_limits(self, topics: set[str]) -> None:
        """An unknown topic would hold its sender for a whole request timeout, so topics are asked about first."""
        unknown = topics - self._limits.keys()
        if not unknown:
            return
        async with open_topics(self._kafka) as admin:
            existing = await admin.partitions(unknown)
            for topic, config in (await admin.config(existing)).items():
                self._limits[topic] = int(config["max.message.bytes"])

    async def _drop(self, producer: Any) -> None:
        if self._producer is producer:
            self._producer = None
            self._notice("producer_replaced", why="a record was refused or not acknowledged")
            await self._stop(producer)

    async def _stop(self, producer: Any) -> None:
        """With something pending and no broker the client's own stop does not return."""
        try:
            await asyncio.wait_for(producer.stop(), 5)
        except (TimeoutError, KafkaError):
            sender = producer._sender.sender_task
            if sender is not None:
                sender.cancel()
                await asyncio.wait([sender], timeout=2)
            await producer.client.close()


async def _send(producer: Any, out: Outgoing) -> None:
    partition = out.partition
    if partition is not None:
        partition %= len(await producer.partitions_for(out.topic))
    headers = [(name, value) for name, value in out.headers]
    if out.key is None and out.value is None:
        # `send` refuses a record with neither; a batch of its own carries it unchanged.
        batch = producer.create_batch()
        batch.append(timestamp=None, key=None, value=None, headers=headers)
        batch.close()
        future = await producer.send_batch(batch, out.topic, partition=partition or 0)
    else:
        future = await producer.send(out.topic, value=out.value, key=out.key, headers=headers, partition=partition)
    await future


def _size(out: Outgoing) -> int:
    headers = sum(len(name.encode()) + len(value or b"") + 10 for name, value in out.headers)
    return len(out.key or b"") + len(out.value or b"") + headers + _OVERHEAD
