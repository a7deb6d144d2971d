"""A local Apache Kafka: one KRaft broker on Java, with the listeners a test asks for."""

import base64
import os
import signal
import uuid
from pathlib import Path

from worker.errors import ConfigError, ServiceUnavailable
from worker.stack import ports
from worker.stack.jars import Programs
from worker.stack.process import Command, run
from worker.stack.server import NotReady
from worker.stack.service import KafkaOptions, Request

FIXED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "auto.create.topics.enable": "false",
    # After a SIGKILL the controller waits this long for the old registration before the port opens again.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


class Kafka:
    """The recipe of one broker; the first use of a data folder formats it."""

    name = "kafka"
    stop_signal = signal.SIGTERM

    def __init__(self, request: Request, programs: Programs) -> None:
        self._request = request
        self._options = request.kafka
        self._programs = programs
        self._home = request.data / "kafka"
        self._home.mkdir(mode=0o700, exist_ok=True)
        self._cluster_id = self._read_cluster_id()
        self._port_file = request.data / "kafka.port"
        self._ports = self._around(request.ports.get("kafka") or ports.remembered(self._port_file))
        if not (self._home / "log/meta.properties").exists():
            self._format()

    @property
    def url(self) -> str:
        return self.listeners["PLAINTEXT"]

    @property
    def listeners(self) -> dict[str, str]:
        return {name: f"127.0.0.1:{port}" for name, port in self._ports.items() if name != "CONTROLLER"}

    def ports(self) -> list[int]:
        return list(self._ports.values())

    def move(self) -> bool:
        plain = self._ports["PLAINTEXT"]
        if not ports.is_free(plain):
            if "kafka" in self._request.ports:
                return False
            plain = ports.another(self._port_file)
        self._ports = self._around(plain)
        return True

    def command(self) -> Command:
        heap = [f"-Xms{min(128, self._options.heap_mb)}m", f"-Xmx{self._options.heap_mb}m"]
        return self._run_java([*heap, "-XX:TieredStopAtLevel=1"], ["kafka.Kafka", self._write_properties()])

    def probe(self) -> None:
        from worker.stack.topics import cluster_id

        if not ports.answers(self._ports["PLAINTEXT"]):
            raise NotReady("its port is closed")
        found = cluster_id({"bootstrap.servers": self.url})
        if found != self._cluster_id:
            raise NotReady(f"cluster {found} answers, not {self._cluster_id}")

    def _around(self, plain: int) -> dict[str, int]:
        """The port of every listener: the plain one as given, the others free ones that differ."""
        chosen = {"PLAINTEXT": plain}
        for name in ("CONTROLLER", *self._options.listeners):
            port = ports.free_port()
            while port in chosen.values():
                port = ports.free_port()
            chosen[name] = port
        return chosen

    def _read_cluster_id(self) -> str:
        file = self._home / "cluster.id"
        if not file.exists():
            file.write_text(base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
        return file.read_text()

    def _format(self) -> None:
        # With "=": one random id in 64 begins with a dash and would be read as an option.
        argv: list[str | Path] = ["kafka.tools.StorageTool", "format", f"--cluster-id={self._cluster_id}"]
        argv += ["--ignore-formatted", "-c", self._write_properties()]
        for user, password in self._options.users.items():
            for mechanism in self._options.mechanisms:
                if mechanism.startswith("SCRAM-"):
                    argv += ["--add-scram", f"{mechanism}=[name={user},password={password}]"]
        code, text = run(self._run_java(["-XX:TieredStopAtLevel=1"], argv))
        if code != 0:
            raise ServiceUnavailable("kafka", f"Kafka could not format {self._home}", advice=text[-800:])

    def _run_java(self, flags: list[str], rest: list[str | Path]) -> Command:
        # No perf data and a temporary folder of ours: otherwise Java leaves files in the system's.
        quiet = ["-XX:-UsePerfData", f"-Djava.io.tmpdir={self._home}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        argv = [self._programs.java, "-XX:+UseSerialGC", *quiet, *flags, "-cp", f"{self._programs.jars}/*", *rest]
        return Command(argv, self._request.environment, self._home)

    def _write_properties(self) -> Path:
        controller = f"127.0.0.1:{self._ports['CONTROLLER']}"
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **self._options.listeners}
        properties = {
            **FIXED,
            # Voters from this file, not from the log: the controller's port may differ at the next start.
            "controller.quorum.voters": f"1@{controller}",
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self._ports.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
            "log.dirs": str(self._home / "log"),
            **_security(self._options),
            **self._options.properties,
        }
        file = self._home / "server.properties"
        file.touch(mode=0o600)
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        return file


def _security(options: KafkaOptions) -> dict[str, str]:
    """The lines for SASL users and TLS files, per listener and mechanism as Kafka wants them."""
    lines: dict[str, str] = {}
    for name, protocol in options.listeners.items():
        if protocol not in {"SSL", "SASL_PLAINTEXT", "SASL_SSL"}:
            raise ConfigError(f"listener {name} has protocol {protocol}", advice="use SSL, SASL_PLAINTEXT or SASL_SSL")
        if "SSL" in protocol and options.keystore is None:
            raise ConfigError(f"listener {name} speaks TLS but no keystore is given", setting="keystore")
        if protocol.startswith("SASL"):
            lines["sasl.enabled.mechanisms"] = ",".join(options.mechanisms)
            for mechanism in options.mechanisms:
                key = f"listener.name.{name.lower()}.{mechanism.lower()}.sasl.jaas.config"
                lines[key] = _login(mechanism, options)
    if options.keystore:
        lines |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": os.fspath(options.keystore)}
    if options.truststore:
        lines |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": os.fspath(options.truststore)}
    return lines


def _login(mechanism: str, options: KafkaOptions) -> str:
    if mechanism.startswith("SCRAM-"):
        return "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    users = "".join(f' user_{user}="{password}"' for user, password in options.users.items())
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required{users};"
