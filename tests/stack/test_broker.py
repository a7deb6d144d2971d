"""A broker of our own: its listeners, its data, and what fault tests do to it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.stack import certificates, client
from tests.stack.certificates import Certificates
from worker.errors import ConfigError, ServiceUnavailable
from worker.stack import KafkaOptions, Stack, start

LISTENERS = {"TLS": "SSL", "SASLP": "SASL_PLAINTEXT", "SASLS": "SASL_SSL"}


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates.make(tmp_path_factory.mktemp("papers"))


@pytest.fixture(scope="module")
def broker(papers: Certificates) -> Iterator[Stack]:
    options = KafkaOptions(
        listeners=LISTENERS, users={"app": "s3cret"}, keystore=papers.keystore, truststore=papers.ca, real=True
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    try:
        stack = start(["kafka"], say=lambda _: None, environment=environment, kafka_options=options)
    except ServiceUnavailable as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(missing))
    with stack:
        yield stack


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("listener", ["SASLP", "SASLS"])
def test_a_user_gets_in_with_the_right_password_only(
    broker: Stack, papers: Certificates, listener: str, mechanism: str
) -> None:
    settings = {
        "bootstrap.servers": broker.kafka_listeners[listener],
        "security.protocol": LISTENERS[listener],
        "sasl.mechanism": mechanism,
        "sasl.username": "app",
        "ssl.ca.location": str(papers.ca),
    }
    assert _brokers({**settings, "sasl.password": "s3cret"}) == 1
    with pytest.raises(KafkaException):
        _brokers({**settings, "sasl.password": "guess"}, timeout=1)


def test_tls_is_checked_against_the_authority(broker: Stack, papers: Certificates) -> None:
    settings = {"bootstrap.servers": broker.kafka_listeners["TLS"], "security.protocol": "SSL"}
    assert _brokers({**settings, "ssl.ca.location": str(papers.ca)}) == 1
    with pytest.raises(KafkaException):
        _brokers(settings, timeout=1)


def test_every_listener_is_on_loopback_and_below_the_ephemeral_ports(broker: Stack) -> None:
    assert set(broker.kafka_listeners) == {"PLAINTEXT", *LISTENERS}
    for address in broker.kafka_listeners.values():
        host, _, port = address.partition(":")
        assert host == "127.0.0.1"
        assert int(port) < 32768


def test_topics_are_created_once_with_their_settings(broker: Stack) -> None:
    broker.create_topics({"compact": 2}, {"cleanup.policy": "compact"})
    broker.create_topics({"compact": 2}, exist_ok=True)
    with pytest.raises(ConfigError, match="topic compact already exists"):
        broker.create_topics({"compact": 2})
    with pytest.raises(ServiceUnavailable, match="topic wrong could not be created"):
        broker.create_topics({"wrong": 1}, {"no.such.setting": "1"})


def test_a_killed_broker_comes_back_on_its_port_with_its_data(broker: Stack) -> None:
    assert broker.kafka is not None
    address = broker.kafka.url
    broker.create_topics({"kept": 1})
    client.produce(address, "kept", [b"before"])
    server = broker.server("kafka")
    first = server.pid
    server.kill()
    assert not server.running
    server.start()
    assert server.pid != first
    client.produce(address, "kept", [b"after"])
    assert [one.value for one in client.consume_all(address, "kept")] == [b"before", b"after"]


def test_a_frozen_broker_keeps_quiet_until_it_is_thawed(broker: Stack) -> None:
    assert broker.kafka is not None
    server = broker.server("kafka")
    server.pause()
    try:
        with pytest.raises(KafkaException):
            _brokers({"bootstrap.servers": broker.kafka.url}, timeout=0.5)
    finally:
        server.resume()
    assert _brokers({"bootstrap.servers": broker.kafka.url}) == 1


def test_kept_data_serves_a_second_stack_on_other_ports(tmp_path: Path) -> None:
    options = KafkaOptions(real=True, heap_mb=256)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    environment["DOCKER_HOST"] = "unix:///nowhere/docker.sock"
    with start(["kafka"], say=lambda _: None, data=tmp_path, environment=environment, kafka_options=options) as first:
        assert first.kafka is not None
        first.create_topics({"kept": 1})
        client.produce(first.kafka.url, "kept", [b"1"])
        first.server("kafka").stop(signal.SIGTERM)
    (tmp_path / "kafka.port").unlink()
    with start(["kafka"], say=lambda _: None, data=tmp_path, environment=environment, kafka_options=options) as second:
        assert second.kafka is not None
        assert second.kafka.url != first.kafka.url
        assert [one.value for one in client.consume_all(second.kafka.url, "kept")] == [b"1"]


def _brokers(settings: dict[str, str], timeout: float = 5) -> int:
    quiet = {"log_level": 0, "log.connection.close": False}
    return len(AdminClient({**settings, **quiet}).list_topics(timeout=timeout).brokers)
