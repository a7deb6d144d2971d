"""Topics with explicit partition counts, and the one metadata question that proves a broker answers."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from worker.errors import ConfigError, ServiceUnavailable
from worker.stack.server import NotReady

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

# Our spelling of the client properties, and librdkafka's.
_SECURITY = {
    "KAFKA_SECURITY_PROTOCOL": "security.protocol",
    "KAFKA_SASL_MECHANISM": "sasl.mechanism",
    "KAFKA_SASL_USERNAME": "sasl.username",
    "KAFKA_SASL_PASSWORD": "sasl.password",
    "KAFKA_SSL_CA_LOCATION": "ssl.ca.location",
    "KAFKA_SSL_CERTIFICATE_LOCATION": "ssl.certificate.location",
    "KAFKA_SSL_KEY_LOCATION": "ssl.key.location",
    "KAFKA_SSL_KEY_PASSWORD": "ssl.key.password",
}
_EXISTS = 36


def client_settings(url: str, environment: Mapping[str, str]) -> dict[str, str]:
    """What a confluent client needs to reach this Kafka."""
    settings = {"bootstrap.servers": url}
    for ours, theirs in _SECURITY.items():
        if value := environment.get(ours):
            settings[theirs] = value
        elif file := environment.get(f"{ours}_FILE"):
            settings[theirs] = Path(file).read_text().strip()
    return settings


def cluster_id(settings: Mapping[str, str]) -> str:
    """The id of the cluster that answers; NotReady while none does."""
    from confluent_kafka import KafkaException

    try:
        metadata = _admin(settings).list_topics(timeout=3)
    except KafkaException as error:
        raise NotReady(str(error)) from error
    if not metadata.brokers:
        raise NotReady("it knows no broker yet")
    return str(metadata.cluster_id)


def create(
    settings: Mapping[str, str], topics: Mapping[str, int], *, config: Mapping[str, str], exist_ok: bool
) -> None:
    """Create every topic or raise for the first that failed; the others may exist afterwards."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    wanted = [
        NewTopic(name, num_partitions=count, replication_factor=-1, config=dict(config))
        for name, count in topics.items()
    ]
    # In a variable until the answers are here: a collected client cancels its own requests.
    admin = _admin(settings)
    for name, answer in admin.create_topics(wanted, operation_timeout=15).items():
        try:
            answer.result(30)
        except KafkaException as failure:
            error = failure.args[0]
            if error.code() == _EXISTS and exist_ok:
                continue
            if error.code() == _EXISTS:
                raise ConfigError(f"topic {name} already exists", setting=name) from failure
            raise ServiceUnavailable("kafka", f"topic {name} could not be created: {error.str()}") from failure


def _admin(settings: Mapping[str, str]) -> "AdminClient":
    try:
        from confluent_kafka.admin import AdminClient
    except ImportError as missing:
        raise ConfigError(
            "the local stack needs the confluent-kafka package", advice="pip install 'oncebox[stack]'"
        ) from missing
    silent = logging.getLogger("oncebox.stack.kafka")
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    return AdminClient({**settings, "socket.timeout.ms": 10_000}, logger=silent)
