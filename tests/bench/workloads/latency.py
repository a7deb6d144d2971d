"""(f) little to do: how long one message takes when nothing else is in its way."""

import json
import time
from collections.abc import Callable

from confluent_kafka import Producer

from tests.bench.contenders import ARRIVED, ARRIVING
from tests.bench.stage import Stage, turned
from tests.bench.topics import Topic
from tests.bench.track import Run

PER_SECOND = 50


def play(stage: Stage, number: int) -> None:
    for contender in turned((ARRIVED, ARRIVING), number):
        topic = stage.track.topics.empty("timed", stage.size.arrivals)
        with stage.track.database.schema_for(contender) as schema:
            calls = topic.messages if contender is ARRIVED else None
            run = Run(
                contender,
                "f",
                number,
                topic,
                schema,
                options={"resident": True},
                calls=calls,
                completed=topic.messages,
                committed=topic.messages,
                feed=sending(stage.track.topics.bootstrap, topic, PER_SECOND),
                stays=contender is ARRIVED,
            )
            stage.track.measure(run)


def sending(bootstrap: str, topic: Topic, per_second: int, *, linger_ms: int = 0) -> Callable[[], None]:
    """Sends the topic's messages at an even pace; each says when it was handed to the client.

    Without some lingering a broker beside us has more to do for each message than anyone else here.
    """

    def send() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": linger_ms})
        producer.list_topics(topic.name, timeout=10)
        began = time.monotonic()
        for number in range(topic.messages):
            time.sleep(max(0.0, began + number / per_second - time.monotonic()))
            order = {"id": f"timed-{number}", "sent": time.monotonic()}
            producer.produce(topic.name, json.dumps(order).encode(), key=order["id"])
            producer.poll(0)
        assert not producer.flush(10), "not everything was sent"

    return send
