"""Every way into a real broker, and every way of being turned away, with the reason."""

import asyncio
import logging
import secrets
import socket
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.security.conftest import PASSWORD, USER, Secured
from worker.errors import ConfigError, OnceboxError, ServiceUnavailable
from worker.kafka.bootstrap import explain_bootstrap
from worker.kafka.quiet import RateLimit
from worker.kafka.security import client_options
from worker.kafka.topics import open_topics
from worker.settings import KafkaSettings

SASL = {"sasl_username": USER, "sasl_password": PASSWORD, "sasl_mechanism": "SCRAM-SHA-512"}


def settings(secured: Secured, listener: str, protocol: str, **more: Any) -> KafkaSettings:
    if protocol.endswith("SSL"):
        more.setdefault("ssl_ca_location", str(secured.authority.file))
    place = secured.listeners[listener].replace("127.0.0.1", "localhost")
    return KafkaSettings(bootstrap_servers=place, security_protocol=protocol, request_timeout="5s", **more)


async def brokers(kafka: KafkaSettings) -> list[str]:
    async with open_topics(kafka) as topics:
        return await topics.brokers()


async def turned_away(kafka: KafkaSettings) -> OnceboxError:
    with pytest.raises(OnceboxError) as caught:
        await brokers(kafka)
    assert PASSWORD not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("listener", "protocol"), [("SASLP", "SASL_PLAINTEXT"), ("SASLS", "SASL_SSL")])
async def test_every_mechanism_lets_the_user_in(secured: Secured, listener: str, protocol: str, mechanism: str) -> None:
    assert await brokers(settings(secured, listener, protocol, **{**SASL, "sasl_mechanism": mechanism}))


async def test_tls_alone_lets_everyone_in_who_trusts_the_broker(secured: Secured) -> None:
    assert await brokers(settings(secured, "TLS", "SSL"))


async def test_a_client_certificate_with_an_encrypted_key_lets_us_in(secured: Secured) -> None:
    pair = secured.authority.issue("client", password="open sesame")
    files = {"ssl_certificate_location": str(pair.certificate), "ssl_key_location": str(pair.key)}
    assert await brokers(settings(secured, "MTLS", "SSL", **files, ssl_key_password="open sesame"))
    error = await turned_away(settings(secured, "MTLS", "SSL", **files))
    assert "KAFKA_SSL_KEY_PASSWORD is not set" in str(error)
    error = await turned_away(settings(secured, "MTLS", "SSL", **files, ssl_key_password="wrong"))
    assert "KAFKA_SSL_KEY_PASSWORD" in str(error)
    assert isinstance(error, ConfigError)


async def test_a_missing_client_certificate_is_explained(secured: Secured) -> None:
    error = await turned_away(settings(secured, "MTLS", "SSL"))
    assert "KAFKA_SECURITY_PROTOCOL is SSL" in str(error) or "certificate" in str(error)


async def test_a_record_travels_over_sasl_and_tls(secured: Secured) -> None:
    kafka = settings(secured, "SASLS", "SASL_SSL", **SASL)
    topic = f"t-{secrets.token_hex(4)}"
    async with open_topics(kafka) as topics:
        await topics.create({topic: 1})
    async with AIOKafkaProducer(**client_options(kafka)) as producer:
        await producer.send_and_wait(topic, b"hello")
    consumer = AIOKafkaConsumer(topic, **client_options(kafka), auto_offset_reset="earliest")
    async with explain_bootstrap(kafka):
        await consumer.start()
    try:
        assert (await consumer.getone()).value == b"hello"
    finally:
        await consumer.stop()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_wrong_password_is_a_wrong_setting(secured: Secured, mechanism: str) -> None:
    wrong = {**SASL, "sasl_mechanism": mechanism, "sasl_password": "hunter2"}
    error = await turned_away(settings(secured, "SASLP", "SASL_PLAINTEXT", **wrong))
    assert isinstance(error, ConfigError)
    assert "refused user 'app'" in str(error)
    assert "hunter2" not in str(error)


async def test_a_mechanism_that_the_port_does_not_offer_is_named(secured: Secured) -> None:
    error = await turned_away(settings(secured, "OLD", "SASL_PLAINTEXT", **SASL))
    assert isinstance(error, ConfigError)
    assert "does not offer SCRAM-SHA-512" in str(error)


async def test_an_unknown_authority_is_a_wrong_setting(secured: Secured) -> None:
    for ca in (str(secured.stranger.file), None):
        error = await turned_away(settings(secured, "TLS", "SSL", ssl_ca_location=ca))
        assert isinstance(error, ConfigError)
        assert error.setting == "kafka.ssl_ca_location"
        assert "is not trusted" in str(error)


@pytest.mark.parametrize(
    ("listener", "protocol"),
    [
        ("PLAINTEXT", "SSL"),
        ("PLAINTEXT", "SASL_PLAINTEXT"),
        ("TLS", "PLAINTEXT"),
        ("SASLP", "PLAINTEXT"),
        ("SASLP", "SASL_SSL"),
        ("SASLS", "PLAINTEXT"),
        ("SASLS", "SASL_PLAINTEXT"),
    ],
)
async def test_a_mixed_up_protocol_is_suspected(secured: Secured, listener: str, protocol: str) -> None:
    more = SASL if protocol.startswith("SASL") else {}
    error = await turned_away(settings(secured, listener, protocol, **more))
    assert f"KAFKA_SECURITY_PROTOCOL is {protocol}" in str(error)


async def test_a_closed_port_and_an_unknown_host_do_not_answer() -> None:
    for place, reason in (("127.0.0.1:1", "Connect call failed"), ("kafka.invalid:9092", "kafka.invalid")):
        error = await turned_away(KafkaSettings(bootstrap_servers=place))
        assert isinstance(error, ServiceUnavailable)
        assert reason in str(error)
        assert "KAFKA_BOOTSTRAP_SERVERS" in str(error)


async def test_a_broker_that_says_nothing_is_waited_for_and_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        error = await turned_away(KafkaSettings(bootstrap_servers=place, request_timeout="1s"))
    assert isinstance(error, ServiceUnavailable)
    assert "1s" in str(error)


async def test_certificate_files_are_looked_at_before_the_broker(secured: Secured) -> None:
    junk = secured.folder / "junk.pem"
    junk.write_text("junk")
    for name, path, reason in (
        ("ssl_ca_location", "/nowhere/ca.pem", "no such file"),
        ("ssl_ca_location", str(junk), "no certificate"),
        ("ssl_certificate_location", "/nowhere/cert.pem", "no such file"),
        ("ssl_certificate_location", str(junk), "PEM"),
    ):
        error = await turned_away(settings(secured, "TLS", "SSL", **{name: path}))
        assert isinstance(error, ConfigError)
        assert reason in str(error)


async def test_brokers_that_were_never_named_are_missed() -> None:
    with pytest.raises(ConfigError, match="KAFKA_BOOTSTRAP_SERVERS is not set"):
        client_options(KafkaSettings())


async def test_clients_that_fail_side_by_side_each_hear_their_own_reason_behind_a_limit_on_the_log() -> None:
    logger = logging.getLogger("aiokafka")
    limit = RateLimit(lines=0)
    logger.addFilter(limit)
    try:
        places = [f"127.0.0.1:{port}" for port in (1, 2, 3)]
        errors = await asyncio.gather(*(turned_away(KafkaSettings(bootstrap_servers=place)) for place in places))
    finally:
        logger.removeFilter(limit)
    for place, error in zip(places, errors, strict=True):
        assert f"Connect call failed ('127.0.0.1', {place.rpartition(':')[2]})" in str(error)
