"""Kafka: where it is, how to be let in, how patient to be."""

from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from worker.errors import ConfigError
from worker.rules.durations import format_duration
from worker.settings.group import Group
from worker.settings.values import Brokers, Duration, Size, Start, TopicPart, between, env, uppered

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def _mechanism(value: object) -> object:
    name = uppered(value)
    if name in ("OAUTHBEARER", "AWS_MSK_IAM"):
        raise ValueError(f"{name} is not supported yet: use SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN")
    return str(name).replace("_", "-") if str(name).startswith("SCRAM") else name


class KafkaSettings(Group):
    """Everything the Kafka clients are told."""

    bootstrap_servers: Annotated[Brokers, env("KAFKA_BOOTSTRAP_SERVERS", "KAFKA_BROKERS")] = ()
    """host:port of some brokers. One is enough while it lives; two or three let a worker start when one is away."""

    security_protocol: Annotated[Protocol, BeforeValidator(uppered), env("KAFKA_SECURITY_PROTOCOL")] = "PLAINTEXT"
    """Must be what the listener speaks. Without SSL anyone on the way reads records, and PLAIN passwords."""

    sasl_mechanism: Annotated[Mechanism | None, BeforeValidator(_mechanism), env("KAFKA_SASL_MECHANISM")] = None
    """PLAIN sends the password itself; SCRAM proves it without sending it."""

    sasl_username: Annotated[str | None, env("KAFKA_SASL_USERNAME", from_file=True)] = None
    """Who the broker's access rules see."""

    sasl_password: Annotated[SecretStr | None, env("KAFKA_SASL_PASSWORD")] = None
    """Secret. A new one needs a restart."""

    ssl_ca_location: Annotated[str | None, env("KAFKA_SSL_CA_LOCATION")] = None
    """PEM file of the authority that signed the brokers' certificates. Unset: the system's authorities are trusted."""

    ssl_certificate_location: Annotated[str | None, env("KAFKA_SSL_CERTIFICATE_LOCATION")] = None
    """PEM file of our own certificate, where brokers ask for one."""

    ssl_key_location: Annotated[str | None, env("KAFKA_SSL_KEY_LOCATION")] = None
    """PEM file of our private key. Unset: it is looked for in the certificate's file."""

    ssl_key_password: Annotated[SecretStr | None, env("KAFKA_SSL_KEY_PASSWORD")] = None
    """Secret that opens the private key."""

    group: Annotated[str, Field(min_length=1, max_length=249)] = "oncebox"
    """The consumer group. Another name reads the topics from `start` again and keeps its own place in the log."""

    client_id: Annotated[str, Field(min_length=1, max_length=249)] = "oncebox"
    """What the brokers' logs and quotas call us."""

    start: Start = "earliest"
    """Where a group begins that has no place yet. earliest runs all that is kept; latest skips what came before."""

    session_timeout: Annotated[Duration, between("1s", "30m")] = timedelta(seconds=10)
    """Longer: a killed worker's partitions wait longer. Shorter: a pause or a restarted broker costs a rebalance."""

    heartbeat_interval: Annotated[Duration, between("50ms", "1m")] = timedelta(milliseconds=500)
    """Longer: rebalances take that much longer. Shorter: more tiny requests."""

    request_timeout: Annotated[Duration, between("1s", "5m")] = timedelta(seconds=10)
    """Longer: a frozen broker holds calls longer. Shorter: a busy broker looks dead."""

    metadata_max_age: Annotated[Duration, between("1s", "1h")] = timedelta(seconds=15)
    """Longer: new partitions stay unread longer. Shorter: more metadata requests."""

    fetch_max_bytes: Annotated[Size, Field(ge=1024)] = 16 * 1024 * 1024
    """Most bytes in one answer. More: more memory. Less: more round trips."""

    partition_fetch_bytes: Annotated[Size, Field(ge=1024)] = 1024 * 1024
    """Most bytes buffered per partition. More: memory grows with partitions. Less: more round trips."""

    fetch_wait: Annotated[Duration, between("1ms", "10s")] = timedelta(milliseconds=50)
    """How long a broker may keep a fetch at partitions without news. Longer: as long, a backlog in its other partitions
    waits for the next fetch. Shorter: more empty requests while nothing comes."""

    fetch_records: Annotated[int, Field(ge=1, le=10_000)] = 500
    """Most records decoded in one step. More: the loop stands still longer. Less: more steps."""

    dead_letter_prefix: TopicPart = "dlq."
    """Dead letters of topic T go to this + T. Changing it leaves the old ones where they are."""

    @model_validator(mode="after")
    def _security_fits(self) -> Self:
        protocol = self.security_protocol
        if protocol.startswith("SASL"):
            _demand(
                "KAFKA_SASL_MECHANISM", self.sasl_mechanism, protocol, fix="=SCRAM-SHA-512 or what the broker offers"
            )
            _demand("KAFKA_SASL_USERNAME", self.sasl_username, protocol, fix=" or KAFKA_SASL_USERNAME_FILE")
            _demand("KAFKA_SASL_PASSWORD", self.sasl_password, protocol, fix=" or KAFKA_SASL_PASSWORD_FILE")
        elif self.sasl_mechanism or self.sasl_username or self.sasl_password:
            raise ConfigError(
                f"SASL credentials are set, but KAFKA_SECURITY_PROTOCOL is {protocol}, which does not use them",
                setting="kafka.security_protocol",
                advice="set KAFKA_SECURITY_PROTOCOL=SASL_SSL (or SASL_PLAINTEXT), or remove the KAFKA_SASL_ settings",
            )
        ssl = (self.ssl_ca_location, self.ssl_certificate_location, self.ssl_key_location, self.ssl_key_password)
        if not protocol.endswith("SSL") and any(ssl):
            raise ConfigError(
                f"KAFKA_SSL_ settings are given, but KAFKA_SECURITY_PROTOCOL is {protocol}, which does not use them",
                setting="kafka.security_protocol",
                advice="set KAFKA_SECURITY_PROTOCOL=SSL (or SASL_SSL), or remove the KAFKA_SSL_ settings",
            )
        if self.ssl_key_location and not self.ssl_certificate_location:
            raise ConfigError(
                "KAFKA_SSL_KEY_LOCATION is set without KAFKA_SSL_CERTIFICATE_LOCATION",
                setting="kafka.ssl_certificate_location",
                advice="name the certificate that belongs to the key",
            )
        return self

    @model_validator(mode="after")
    def _fetches_fit(self) -> Self:
        if self.partition_fetch_bytes > self.fetch_max_bytes:
            raise ConfigError(
                f"ONCEBOX_PARTITION_FETCH_BYTES ({self.partition_fetch_bytes}) is above "
                f"ONCEBOX_FETCH_MAX_BYTES ({self.fetch_max_bytes}), which bounds the whole answer",
                setting="kafka.partition_fetch_bytes",
                advice="lower the first or raise the second",
            )
        return self

    @model_validator(mode="after")
    def _heartbeats_fit(self) -> Self:
        if self.session_timeout <= 3 * self.heartbeat_interval:
            raise ConfigError(
                f"ONCEBOX_SESSION_TIMEOUT ({format_duration(self.session_timeout)}) is not above three times "
                f"ONCEBOX_HEARTBEAT_INTERVAL ({format_duration(self.heartbeat_interval)}): "
                "a few late heartbeats would throw the worker out of its group",
                setting="kafka.session_timeout",
                advice="raise the session timeout or lower the heartbeat interval",
            )
        return self


def _demand(name: str, value: object, protocol: str, *, fix: str) -> None:
    if not value:
        raise ConfigError(
            f"{name} is not set, and KAFKA_SECURITY_PROTOCOL={protocol} needs it",
            setting=f"kafka.{name.removeprefix('KAFKA_').lower()}",
            advice=f"set {name}{fix}",
        )
