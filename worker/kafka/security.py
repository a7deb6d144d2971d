"""How every Kafka client of ours is let in: one set of options for consumers, producers and the admin client."""

import ssl
from typing import Any

from worker.errors import ConfigError
from worker.settings import KafkaSettings


def client_options(kafka: KafkaSettings) -> dict[str, Any]:
    """What AIOKafkaConsumer, AIOKafkaProducer and AIOKafkaAdminClient have in common. Reads the certificate files."""
    if not kafka.bootstrap_servers:
        raise ConfigError(
            "KAFKA_BOOTSTRAP_SERVERS is not set",
            setting="kafka.bootstrap_servers",
            advice="set it to host:port of one or more brokers; `oncebox stack up` starts one here",
        )
    options: dict[str, Any] = {
        "bootstrap_servers": list(kafka.bootstrap_servers),
        "client_id": kafka.client_id,
        "request_timeout_ms": round(kafka.request_timeout.total_seconds() * 1000),
        "metadata_max_age_ms": round(kafka.metadata_max_age.total_seconds() * 1000),
        "security_protocol": kafka.security_protocol,
    }
    if kafka.security_protocol.endswith("SSL"):
        options["ssl_context"] = ssl_context(kafka)
    if kafka.security_protocol.startswith("SASL"):
        assert kafka.sasl_password is not None
        options |= {
            "sasl_mechanism": kafka.sasl_mechanism,
            "sasl_plain_username": kafka.sasl_username,
            "sasl_plain_password": kafka.sasl_password.get_secret_value(),
        }
    return options


def ssl_context(kafka: KafkaSettings) -> ssl.SSLContext:
    """A context that trusts the given authority alone, or the system's, and always checks the host's name."""
    try:
        context = ssl.create_default_context(cafile=kafka.ssl_ca_location)
    except (OSError, ssl.SSLError) as error:
        raise _unreadable("ssl_ca_location", kafka.ssl_ca_location, error) from None
    if kafka.ssl_certificate_location is None:
        return context

    def password() -> str:
        # Without this the library asks on the terminal, and a worker waits there for ever.
        if kafka.ssl_key_password is None:
            raise ConfigError(
                "the private key for Kafka is encrypted, and KAFKA_SSL_KEY_PASSWORD is not set",
                setting="kafka.ssl_key_password",
                advice="set it or KAFKA_SSL_KEY_PASSWORD_FILE",
            )
        return kafka.ssl_key_password.get_secret_value()

    key = kafka.ssl_key_location
    for name, path in (("ssl_certificate_location", kafka.ssl_certificate_location), ("ssl_key_location", key)):
        _open(name, path)
    try:
        context.load_cert_chain(kafka.ssl_certificate_location, key, password)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"the certificate {kafka.ssl_certificate_location} and the key {key or 'in it'} cannot be used: "
            f"{_reason(error)}",
            setting="kafka.ssl_certificate_location",
            advice="both must be PEM and belong together; an encrypted key needs the right KAFKA_SSL_KEY_PASSWORD",
        ) from None
    return context


def _open(name: str, path: str | None) -> None:
    if path is None:
        return
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise _unreadable(name, path, error) from None


def _unreadable(name: str, path: str | None, error: Exception) -> ConfigError:
    variable = f"KAFKA_{name.upper()}"
    return ConfigError(
        f"{variable} is {path!r}, which cannot be used: {_reason(error)}",
        setting=f"kafka.{name}",
        advice="name a PEM file that this user can read",
    )


def _reason(error: Exception) -> str:
    match error:
        case ssl.SSLError():
            return (error.reason or "not a PEM file").replace("_", " ").lower()
        case OSError():
            return (error.strerror or str(error)).lower()
    return str(error)
