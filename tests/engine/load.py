"""Load for failure stories: records with known keys at known places, and what must be true of them afterwards."""

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tests.engine.site import Site
from tests.stack.client import Sent

Place = tuple[int, int]


def message(key: str, **more: Any) -> bytes:
    return json.dumps({"id": key, **more}).encode()


def duplicated(
    keys: Iterable[str], partitions: int, *, copies: int = 2, seed: int = 1, failing: float = 0.0
) -> list[Sent]:
    """Each key `copies` times, each time on another partition, shuffled; Kafka keys make lines of some records each.

    A share of the messages fails at the first attempt, with proof that nothing was executed.
    """
    chance = random.Random(seed)
    records = []
    for number, key in enumerate(keys):
        body = message(key, fails=1) if chance.random() < failing else message(key)
        for copy in range(copies):
            kafka_key = f"line-{number % 97}".encode()
            records.append(Sent(body, key=kafka_key, partition=(number + copy) % partitions))
    chance.shuffle(records)
    return records


def send(site: Site, topic: str, records: list[Sent]) -> dict[Place, str]:
    """Produce, and say which key lies where."""
    places = site.produce(topic, records)
    return {place: json.loads(r.value or b"")["id"] for place, r in zip(places, records, strict=True)}


def starts(site: Site) -> Counter[str]:
    """How often an effect was started, by key."""
    return Counter(w["key"] for w in site.witness() if w["what"] == "start")


async def assert_each_ran_once(site: Site, sent: Mapping[Place, str]) -> None:
    """Nothing lost, nothing done twice, nothing in doubt, nothing given up."""
    keys = set(sent.values())
    states = await site.states()
    assert states.keys() == keys, f"lost or invented: {sorted(states.keys() ^ keys)[:5]}"
    assert Counter(states.values()) == {"completed": len(keys)}
    begun = starts(site)
    assert begun.keys() == keys
    twice = {key: count for key, count in begun.items() if count > 1}
    assert not twice, f"effects started more than once: {twice}"
    ended = Counter(w["key"] for w in site.witness() if w["what"] == "end")
    assert ended == begun, "every effect that was started has ended"
