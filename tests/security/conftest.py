"""A broker with every kind of listener, and the certificates for it."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.security.certificates import Authority
from worker.errors import ServiceUnavailable
from worker.stack import KafkaOptions, start

LISTENERS = {
    "SASLP": "SASL_PLAINTEXT",
    "SASLS": "SASL_SSL",
    "TLS": "SSL",
    "MTLS": "SSL",
    "OLD": "SASL_PLAINTEXT",
}
USER, PASSWORD = "app", "s3cret with spaces and %"


@dataclass(frozen=True)
class Secured:
    """Where each listener is: PLAINTEXT, SASLP, SASLS, TLS, MTLS (wants our certificate), OLD (PLAIN only)."""

    listeners: Mapping[str, str]
    authority: Authority
    stranger: Authority
    folder: Path


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "authority")


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that signed nothing of ours."""
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="session")
def secured(authority: Authority, stranger: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    options = KafkaOptions(
        listeners=LISTENERS,
        users={USER: PASSWORD},
        keystore=authority.keystore("broker", "localhost", "127.0.0.1"),
        truststore=authority.file,
        properties={
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.old.sasl.enabled.mechanisms": "PLAIN",
        },
        heap_mb=256,
        real=True,
    )
    try:
        stack = start(["kafka"], say=lambda line: None, kafka_options=options)
    except ServiceUnavailable as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))
    with stack:
        yield Secured(stack.kafka_listeners, authority, stranger, tmp_path_factory.mktemp("secured"))
