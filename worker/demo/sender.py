"""The sender: what a webhook provider does, with a client that is not the workers' own."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Producer

from worker.demo.messages import Delivery, topic_of
from worker.errors import ServiceUnavailable

Place = tuple[str, int]
_STEP = 0.05


class Sender:
    """Sends the deliveries, and knows where every partition ends."""

    def __init__(self, settings: Mapping[str, str], run: str) -> None:
        self._producer = Producer({**settings, "enable.idempotence": True, "linger.ms": 5})
        self._run = run
        self.acknowledged = 0
        self.ends: Counter[Place] = Counter()
        self._refused: Any = None

    async def send(self, deliveries: Sequence[Delivery], *, seconds: float) -> None:
        """Send all of them, evenly over the given time, and return when Kafka has acknowledged every one."""
        steps = max(1, round(seconds / _STEP))
        size = -(-len(deliveries) // steps)
        for start in range(0, len(deliveries), size):
            for delivery in deliveries[start : start + size]:
                self._produce(delivery)
            await asyncio.sleep(_STEP)
            self._producer.poll(0)
        left = await asyncio.to_thread(self._producer.flush, 30)
        if left or self._refused is not None:
            raise ServiceUnavailable("kafka", f"{left} messages were not acknowledged: {self._refused or 'no answer'}")

    def _produce(self, delivery: Delivery) -> None:
        topic = topic_of(self._run, delivery.message.operation)
        headers = list(delivery.headers)
        self._producer.produce(
            topic, delivery.message.value, partition=delivery.partition, headers=headers, on_delivery=self._answered
        )

    def _answered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._refused = error
            return
        self.acknowledged += 1
        place = (message.topic(), message.partition())
        self.ends[place] = max(self.ends[place], message.offset() + 1)
