"""Topics as an administrator sees them: do they exist, create them, read their configuration.

The admin client raises nothing: refusals come back as codes inside its answers. `checked` is the one place that looks.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.metadata import MetadataRequest

from worker.errors import ConfigError, ServiceUnavailable
from worker.kafka.bootstrap import explain_bootstrap
from worker.kafka.listing import list_topics
from worker.kafka.security import client_options
from worker.rules.horizons import FoundTopic
from worker.settings import KafkaSettings

UNKNOWN_TOPIC = 3
_COORDINATOR_TRIES = 20
ALREADY_EXISTS = 36
ADVICE = {
    17: "a topic's name has at most 249 letters, digits, dots, dashes and _",
    29: "allow this Kafka user to describe, read and write the topic",
    31: "allow this Kafka user to do that on the cluster, or let someone else do it",
    38: "the replication factor cannot be higher than the number of brokers",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """One code inside an answer."""

    topic: str
    code: int
    message: str | None


def refusals(answer: Any) -> Iterator[Refusal]:
    """Every error code in an answer, however deep."""
    if hasattr(answer, "to_object"):
        answer = answer.to_object()
    if isinstance(answer, Mapping):
        code = answer.get("error_code", 0)
        if code:
            topic = answer.get("topic") or answer.get("resource_name") or ""
            yield Refusal(topic, code, answer.get("error_message"))
        for value in answer.values():
            yield from refusals(value)
    elif isinstance(answer, (list, tuple)):
        for item in answer:
            yield from refusals(item)


def checked(answer: Any, *, allowed: Collection[int] = ()) -> Any:
    """The answer, unless it carries a code that is not allowed: then the first of them is raised.

    ServiceUnavailable for what Kafka itself calls worth another try, ConfigError for everything else.
    """
    for refusal in refusals(answer):
        if refusal.code in allowed:
            continue
        error = for_code(refusal.code)
        reason = refusal.message or getattr(error, "description", None) or error.__name__
        problem = f"Kafka refused {refusal.topic or 'the request'}: {reason.rstrip('.')} (code {refusal.code})"
        if error.retriable:
            raise ServiceUnavailable("kafka", problem)
        raise ConfigError(problem, advice=ADVICE.get(refusal.code))
    return answer


class Topics:
    """Looks after topics through one open admin client."""

    def __init__(self, admin: Any) -> None:
        self._admin = admin

    async def brokers(self) -> list[str]:
        """host:port of every broker, as the cluster itself names them: what clients must be able to reach."""
        cluster = await self._admin.describe_cluster()
        return [f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]]

    async def partitions(self, names: Collection[str]) -> dict[str, int]:
        """Partition counts of the named topics that exist; one that we may not see raises ConfigError."""
        if not names:
            return {}
        # The client's own describe_topics lets the broker create what it is asked about.
        request = MetadataRequest(sorted(names), allow_auto_topic_creation=False)
        answer = (await self._admin._send_request(request)).to_object()
        topics = {topic["topic"]: topic for topic in answer["topics"]}
        for topic in topics.values():
            # A partition between two leaders has a code of its own, and exists.
            checked({**topic, "partitions": []}, allowed=(UNKNOWN_TOPIC,))
        return {name: len(topic["partitions"]) for name, topic in topics.items() if not topic["error_code"]}

    async def found(self, names: Collection[str]) -> dict[str, FoundTopic]:
        """Those of the names that are topics now, with their ids where the broker tells; raises if it is not sure."""
        try:
            return await list_topics(self._admin._client, names)
        except (KafkaError, TimeoutError) as error:
            raise ServiceUnavailable("kafka", f"Kafka did not list topics: {type(error).__name__}: {error}") from error

    async def missing(self, names: Collection[str]) -> list[str]:
        """Those of the names that are no topics."""
        return sorted(set(names) - set(await self.partitions(names)))

    async def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        """What a group has committed on a topic, by partition; a partition without a place is missing."""
        for left in reversed(range(_COORDINATOR_TRIES)):
            try:
                found = await self._admin.list_consumer_group_offsets(group)
                break
            except KafkaError as error:
                # The first question about any group lets the broker create the topic that holds the answer.
                if not (error.retriable and left):
                    raise ServiceUnavailable("kafka", f"the offsets of group {group!r} are unknown: {error}") from error
                await asyncio.sleep(0.25)
        return {tp.partition: at.offset for tp, at in found.items() if tp.topic == topic and at.offset >= 0}

    async def create(
        self, topics: Mapping[str, int], *, replicas: int = -1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create topics with so many partitions; those that exist stay as they are. -1 takes the broker's default."""
        # The client takes its own -1 only together with an assignment, and an empty one is none.
        nowhere: dict[int, list[int]] | None = {} if -1 in (replicas, *topics.values()) else None
        wanted = [NewTopic(name, count, replicas, nowhere, dict(config or {})) for name, count in topics.items()]
        if wanted:
            checked(await self._admin.create_topics(wanted), allowed=(ALREADY_EXISTS,))

    async def config(self, names: Collection[str]) -> dict[str, dict[str, str]]:
        """The configuration of topics, defaults included."""
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in sorted(names)]
        found: dict[str, dict[str, str]] = {}
        for answer in await self._admin.describe_configs(resources) if resources else ():
            for resource in checked(answer).to_object()["resources"]:
                entries = resource["config_entries"]
                found[resource["resource_name"]] = {e["config_names"]: e["config_value"] for e in entries}
        return found


@asynccontextmanager
async def open_topics(kafka: KafkaSettings) -> AsyncIterator[Topics]:
    """An admin client for a while; why it cannot be opened is explained."""
    admin = AIOKafkaAdminClient(**client_options(kafka))
    try:
        async with explain_bootstrap(kafka):
            await admin.start()
        yield Topics(admin)
    finally:
        await admin.close()
