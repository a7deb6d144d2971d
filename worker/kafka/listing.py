"""Topics as the cluster lists them, with their ids: another id under the same name is another log.

The client's own metadata request is too old to carry ids; this is the first version that does, beside the one before.
"""

from collections.abc import Collection
from typing import Any

from aiokafka.errors import for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.metadata import MetadataRequest_v5
from aiokafka.protocol.types import (
    AbstractType,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from worker.rules.horizons import FoundTopic

_UNKNOWN_TOPIC = 3
_NO_ID = bytes(16)


class _Id(AbstractType):  # type: ignore[misc]
    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: Any) -> bytes:
        found: bytes = data.read(16)
        return found


class _Response(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", CompactString("utf-8")),
                ("topic_id", _Id),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_authorized_operations", Int32),
        ("tags", TaggedFields),
    )


class _Request(RequestStruct):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 10
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _Response
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _Id), ("name", CompactString("utf-8")), ("tags", TaggedFields))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _Listing(Request[MetadataRequest_v5 | _Request]):  # type: ignore[misc]
    """The newest of both that the broker knows."""

    API_KEY = 3

    def __init__(self, names: Collection[str]) -> None:
        self._names = sorted(names)

    def build(self, request_struct_class: Any) -> Any:
        if request_struct_class is _Request:
            return _Request([(_NO_ID, name, {}) for name in self._names], False, False, False, {})
        return request_struct_class(self._names, False)


async def list_topics(client: Any, names: Collection[str]) -> dict[str, FoundTopic]:
    """Those of the named topics that exist, asked of any broker, which creates nothing; KafkaError says why not."""
    if not names:
        return {}
    answer = await client.send(client.get_random_node(), _Listing(names))
    found: dict[str, FoundTopic] = {}
    for topic in answer.to_object()["topics"]:
        code = topic["error_code"]
        if code == _UNKNOWN_TOPIC:
            continue
        if code:
            raise for_code(code)(f"topic {topic['topic']}")
        id_ = topic.get("topic_id")
        found[topic["topic"]] = FoundTopic(len(topic["partitions"]), None if id_ in (None, _NO_ID) else id_)
    return found
