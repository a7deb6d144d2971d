"""librdkafka's mock cluster, by ctypes on the library that confluent-kafka brings; one broker, all in memory.

The calls have no ABI promise, so confluent-kafka is pinned exactly. A failed assertion in there aborts the
process: only the broker's own child process may load this.
"""

import ctypes
import importlib.util
from pathlib import Path

from worker.errors import ConfigError

_PRODUCER = 0
_BROKER = 1


def library() -> Path:
    """The shared library inside confluent-kafka's wheel."""
    package = importlib.util.find_spec("confluent_kafka")
    for folder in (package.submodule_search_locations or []) if package else []:
        for place, pattern in (
            (Path(folder).parent / "confluent_kafka.libs", "librdkafka*"),
            (Path(folder), "**/librdkafka*"),
        ):
            if found := sorted(place.glob(pattern)):
                return found[0]
    raise ConfigError("the in-memory broker needs the confluent-kafka wheel", advice="pip install 'oncebox[stack]'")


class MockCluster:
    """One mock broker; `port` is where it really listens, `advertise` what it tells its clients."""

    def __init__(self) -> None:
        calls = ctypes.CDLL(str(library()))
        calls.rd_kafka_conf_new.restype = ctypes.c_void_p
        calls.rd_kafka_new.restype = ctypes.c_void_p
        calls.rd_kafka_new.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        calls.rd_kafka_mock_cluster_new.restype = ctypes.c_void_p
        calls.rd_kafka_mock_cluster_new.argtypes = [ctypes.c_void_p, ctypes.c_int]
        calls.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
        calls.rd_kafka_mock_cluster_bootstraps.argtypes = [ctypes.c_void_p]
        calls.rd_kafka_mock_topic_create.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
        calls.rd_kafka_mock_broker_set_host_port.argtypes = [
            ctypes.c_void_p,
            ctypes.c_int32,
            ctypes.c_char_p,
            ctypes.c_int,
        ]
        calls.rd_kafka_mock_group_initial_rebalance_delay_ms.argtypes = [ctypes.c_void_p, ctypes.c_int32]
        self._calls = calls
        reason = ctypes.create_string_buffer(512)
        handle = calls.rd_kafka_new(_PRODUCER, calls.rd_kafka_conf_new(), reason, len(reason))
        if not handle:
            raise ConfigError(f"librdkafka refused to start: {reason.value.decode()}")
        self._cluster = calls.rd_kafka_mock_cluster_new(handle, 1)
        calls.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        self.port = int(calls.rd_kafka_mock_cluster_bootstraps(self._cluster).decode().rpartition(":")[2])

    def advertise(self, host: str, port: int) -> None:
        self._calls.rd_kafka_mock_broker_set_host_port(self._cluster, _BROKER, host.encode(), port)

    def create_topic(self, name: str, partitions: int) -> int:
        """Kafka's error code; 36 when the topic exists."""
        return int(self._calls.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1))
