"""A webhook provider for the demo of docker-compose.yml: sends every message one to three times.

It uses the worker's own packages, so that it runs in the worker's image.
"""

import asyncio
import os
import random
import secrets
import sys

from aiokafka import AIOKafkaProducer

from worker.demo.messages import TOPICS, compose, deliver


async def main() -> None:
    """Send SEED_MESSAGES messages, about SEED_PER_SECOND deliveries a second, and return when Kafka has all of them."""
    run = f"seed-{secrets.token_hex(3)}"
    messages = compose(run, int(os.environ.get("SEED_MESSAGES", "6000")), random.Random(run))
    deliveries = deliver(messages, random.Random(run))
    pause = 1 / max(1.0, float(os.environ.get("SEED_PER_SECOND", "100")))
    producer = AIOKafkaProducer(bootstrap_servers=os.environ["KAFKA_BOOTSTRAP_SERVERS"], enable_idempotence=True)
    await producer.start()
    try:
        for delivery in deliveries:
            message = delivery.message
            await producer.send(
                TOPICS[message.operation],
                message.value,
                key=message.reference.encode(),
                partition=delivery.partition,
                headers=list(delivery.headers),
            )
            await asyncio.sleep(pause)
    finally:
        await producer.stop()
    sys.stdout.write(f"sent {len(deliveries)} deliveries of {len(messages)} messages\n")


if __name__ == "__main__":
    asyncio.run(main())
