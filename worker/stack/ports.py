"""Free ports on loopback. A port is only ever probably free: whoever binds it must be ready to ask again."""

import random
import socket
from pathlib import Path

from worker.errors import ConfigError

# Below the usual ephemeral range: there the kernel lends ports to outgoing connections, ours among them.
_LOWEST, _HIGHEST = 15_000, 32_767


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def answers(port: int) -> bool:
    """Somebody accepts connections there."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    choice = random.SystemRandom()
    for _ in range(500):
        port = choice.randint(_LOWEST, _HIGHEST)
        if is_free(port):
            return port
    raise ConfigError(
        f"no free port between {_LOWEST} and {_HIGHEST} on 127.0.0.1 after 500 tries",
        advice="stop some servers, or name the services by KAFKA_BOOTSTRAP_SERVERS, DATABASE_URL and REDIS_URL",
    )


def remembered(file: Path) -> int:
    """The port this data was served on last time if it is free, else a new one that is remembered from now on."""
    last = int(file.read_text()) if file.exists() else 0
    if last and is_free(last):
        return last
    return another(file)


def another(file: Path) -> int:
    port = free_port()
    file.write_text(str(port))
    return port


def check_named(service: str, port: int) -> None:
    """Refuse a port the user named that cannot be had; found before anything is started."""
    if not 1 <= port <= 65_535:
        raise ConfigError(f"port {port} for {service} is not a port number", advice="name one from 1 to 65535")
    if not is_free(port):
        raise ConfigError(
            f"port {port} for {service} is already in use on 127.0.0.1",
            setting=service,
            advice="stop what listens there, name another port, or name none and a free one is found",
        )
