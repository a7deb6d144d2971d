"""A local PostgreSQL on loopback with a SCRAM password, from the wheel's programs or those on PATH."""

import asyncio
import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from worker.errors import ConfigError, ServiceUnavailable
from worker.stack import ports
from worker.stack.binaries import Binaries
from worker.stack.process import Command, run
from worker.stack.reach import reachable_home
from worker.stack.secrets import password
from worker.stack.server import NotReady
from worker.stack.service import Request

_USER = "oncebox"


class Postgres:
    """The recipe of one PostgreSQL; the first use of a data folder creates the cluster in it."""

    name = "postgres"
    stop_signal = signal.SIGINT  # "fast": open transactions are rolled back, everything is written

    def __init__(self, request: Request, programs: Binaries) -> None:
        self._request = request
        self._programs = programs
        self._home = reachable_home(request.data / "postgres", self._programs.user)
        self._data = self._home / "data"
        self._password = password(request.data / "postgres.password")
        self._port = request.ports.get("postgres") or ports.remembered(request.data / "postgres.port")
        if self._data.exists():
            self._check_version()
        else:
            self._create()

    @property
    def url(self) -> str:
        return f"postgresql://{_USER}:{self._password}@127.0.0.1:{self._port}/postgres"

    def ports(self) -> list[int]:
        return [self._port]

    def move(self) -> bool:
        if "postgres" in self._request.ports:
            return False
        self._port = ports.another(self._request.data / "postgres.port")
        return True

    def command(self) -> Command:
        settings = {
            "unix_socket_directories": "",
            "fsync": "on" if self._request.durable else "off",
            "shared_buffers": "128MB",
            "max_wal_size": "1GB",
            # Shared memory as files of the data folder: what a SIGKILL leaves goes away with the folder.
            "dynamic_shared_memory_type": "mmap",
            **self._request.postgres_settings,
        }
        flags = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        argv: list[str | Path] = [self._programs.folder / "postgres", "-D", self._data]
        argv += ["-h", "127.0.0.1", "-p", str(self._port), *flags]
        # SIGQUIT, not SIGKILL: a killed postmaster leaves its backends to notice by themselves.
        return Command(argv, self._request.environment, self._home, self._programs.user, signal.SIGQUIT)

    def probe(self) -> None:
        if not ports.answers(self._port):
            raise NotReady("its port is closed")
        # In a thread: the caller may be inside an event loop.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, _select_one(self.url)).result()

    def _create(self) -> None:
        made, secret = self._home / "data.new", self._home / "secret"
        shutil.rmtree(made, ignore_errors=True)
        secret.touch(mode=0o600)
        secret.write_text(self._password)
        if self._programs.user is not None:
            os.chown(secret, self._programs.user, self._programs.user)
        argv: list[str | Path] = [self._programs.folder / "initdb", "-D", made, "-U", _USER, "--pwfile", secret]
        argv += ["--auth=scram-sha-256", "--locale=C", "--encoding=UTF8", "--no-sync"]
        try:
            code, text = run(Command(argv, self._request.environment, self._home, self._programs.user))
        finally:
            secret.unlink()
        if code != 0:
            raise ServiceUnavailable("postgres", f"initdb failed with code {code}", advice=text[-800:])
        # The name appears only when the cluster is whole: a killed initdb is simply done again.
        made.rename(self._data)

    def _check_version(self) -> None:
        made_by = int((self._data / "PG_VERSION").read_text())
        if made_by != self._programs.major:
            raise ConfigError(
                f"the data in {self._data} was made by PostgreSQL {made_by}, but {self._programs.major} is here",
                advice="start fresh (oncebox stack up --fresh), or name another data folder",
            )


async def _select_one(url: str) -> None:
    import asyncpg

    try:
        connection = await asyncpg.connect(url, timeout=2)
        try:
            await connection.fetchval("SELECT 1")
        finally:
            await connection.close(timeout=2)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise NotReady(str(error) or type(error).__name__) from error
