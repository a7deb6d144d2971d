"""Says why Kafka did not let us in.

The client answers every failed start with "Unable to bootstrap" and writes the reason to its log; here the two are
put together again.
"""

import logging
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar

from aiokafka.errors import KafkaError

from worker.errors import ConfigError, OnceboxError, ServiceUnavailable
from worker.rules.durations import format_duration
from worker.settings import KafkaSettings

_CLIENT = logging.getLogger("aiokafka")
_REASON = re.compile(r'Unable (?:connect to|to request metadata from) "([^"]*)": ?(.*)', re.DOTALL)
# Per task, so that clients that start side by side do not hear each other.
_heard: ContextVar[list[str] | None] = ContextVar("heard", default=None)


class _Listen(logging.Filter):
    """Takes the lines that say why a start failed out of the client's log; they come back as our error."""

    def filter(self, record: logging.LogRecord) -> bool:
        reasons = _heard.get()
        match = _REASON.match(record.getMessage()) if reasons is not None else None
        if match is None or reasons is None:
            return True
        reasons.append(match[2].strip())
        return False


# First in line: a limit on the log's rate must not hide the reason from us.
_CLIENT.filters.insert(0, _Listen())
# Without a handler of its own Python prints a library's warnings to standard error, beside our one message.
_CLIENT.addHandler(logging.NullHandler())


@asynccontextmanager
async def explain_bootstrap(kafka: KafkaSettings) -> AsyncIterator[None]:
    """Around the start of a Kafka client: ServiceUnavailable or ConfigError instead of the client's own error.

    ServiceUnavailable is worth another try; ConfigError (credentials, certificates, mechanism) is not.
    The client that failed to start must still be stopped, and thrown away.
    """
    reasons: list[str] = []
    token = _heard.set(reasons)
    begun = time.monotonic()
    try:
        yield
    except (KafkaError, OSError) as error:
        timed_out = time.monotonic() - begun >= kafka.request_timeout.total_seconds()
        raise explain(kafka, reasons or [f"{type(error).__name__}: {error}"], timed_out=timed_out) from error
    finally:
        _heard.reset(token)


def explain(kafka: KafkaSettings, reasons: Sequence[str], *, timed_out: bool = False) -> OnceboxError:
    """The error behind what the client wrote about each broker it tried."""
    text = "\n".join(reasons)
    brokers = ", ".join(kafka.bootstrap_servers)
    if "SaslAuthenticationFailed" in text:
        return ConfigError(
            f"Kafka at {brokers} refused user {kafka.sasl_username!r}: the name or the password is wrong",
            setting="kafka.sasl_password",
            advice=f"check KAFKA_SASL_USERNAME, KAFKA_SASL_PASSWORD, and that the user has {kafka.sasl_mechanism}",
        )
    if "UnsupportedSaslMechanism" in text:
        return ConfigError(
            f"Kafka at {brokers} does not offer {kafka.sasl_mechanism} on this port",
            setting="kafka.sasl_mechanism",
            advice="set KAFKA_SASL_MECHANISM to one that the listener has enabled",
        )
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return _untrusted(kafka, brokers, text)
    reason = max(reasons, key=len)
    if not timed_out and (not reason or "closed" in reason or "IllegalSaslState" in reason or "SSL" in reason):
        return ServiceUnavailable(
            "kafka",
            f"Kafka at {brokers} broke off the first exchange" + (f": {reason}" if "SSL" in reason else ""),
            advice=f"KAFKA_SECURITY_PROTOCOL is {kafka.security_protocol}: is that what this port speaks?",
        )
    return ServiceUnavailable(
        "kafka",
        f"Kafka at {brokers} does not answer: {reason or f'nothing within {format_duration(kafka.request_timeout)}'}",
        advice="check KAFKA_BOOTSTRAP_SERVERS and that a broker listens there; `oncebox stack up` starts one here",
    )


def _untrusted(kafka: KafkaSettings, brokers: str, text: str) -> ConfigError:
    found = re.search(r"certificate verify failed: ([^(\n]+)", text)
    why = found[1].strip() if found else "it does not lead to a known authority"
    trusted = kafka.ssl_ca_location or "the system's authorities"
    return ConfigError(
        f"the certificate of Kafka at {brokers} is not trusted: {why} (trusting {trusted})",
        setting="kafka.ssl_ca_location",
        advice="set KAFKA_SSL_CA_LOCATION to the authority that signed it, and use the host name it was issued for",
    )
