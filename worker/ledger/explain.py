"""Says why Postgres did not let us in, in words an operator can act on, without the password."""

import os
import socket
import ssl
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from worker.errors import ConfigError, OnceboxError, ServiceUnavailable


def explain_database_error(error: BaseException, url: str) -> OnceboxError:
    """ConfigError when DATABASE_URL or a privilege is wrong, ServiceUnavailable when trying again may help."""
    if isinstance(error, OnceboxError):
        return error
    place, name, user = _parts(url)
    if isinstance(error, asyncpg.PostgresError):
        return _refused(error, place, name, user)
    return _unreached(error, place, _unreadable(url))


def _refused(error: asyncpg.PostgresError, place: str, name: str, user: str) -> OnceboxError:
    """The server answered, and said no."""
    match error:
        case asyncpg.InvalidPasswordError():
            return _wrong(f"Postgres at {place} refused user {user!r}: wrong password", "correct it in DATABASE_URL")
        case asyncpg.InvalidAuthorizationSpecificationError():
            return _wrong(f"Postgres at {place} refused user {user!r}: {error}", "correct one or the other")
        case asyncpg.InvalidCatalogNameError():
            return _wrong(f"Postgres at {place} has no database {name!r}", "create it, or correct DATABASE_URL")
        case asyncpg.InsufficientPrivilegeError():
            return _wrong(f"user {user!r} may not do that in {name!r}: {error}", "grant it, or name another user")
        case asyncpg.ReadOnlySQLTransactionError():
            return _away(f"Postgres at {place} is read-only", "point DATABASE_URL at the primary")
        case asyncpg.TooManyConnectionsError():
            return _away(f"Postgres at {place} has no free connection", "raise max_connections, or run fewer workers")
        case asyncpg.CannotConnectNowError():
            return _away(f"Postgres at {place} is starting or stopping: {error}", "try again in a moment")
    return _away(f"Postgres at {place} failed: {type(error).__name__}: {error}", "see the server's log")


def _unreached(error: BaseException, place: str, unreadable: str | None) -> OnceboxError:
    """The client gave up before the server said anything about us."""
    match error:
        case asyncpg.TargetServerAttributeNotMatched():
            return _away(f"Postgres at {place} is a read-only standby", "point DATABASE_URL at the primary")
        case ssl.SSLCertVerificationError():
            return _wrong(
                f"the certificate of Postgres at {place} is not trusted: {error.verify_message}",
                "name its authority with sslrootcert=/path/ca.pem in DATABASE_URL, and the host it was issued for",
            )
        case ssl.SSLError():
            return _wrong(f"TLS with Postgres at {place} failed: {error.reason or error}", "check its sslmode")
        case ConnectionError() if "rejected SSL" in str(error):
            return _wrong(f"Postgres at {place} does not speak TLS", "use sslmode=disable only on a network you trust")
        case FileNotFoundError() | PermissionError() if unreadable:
            return _wrong(f"DATABASE_URL names {unreadable}, which cannot be read", "correct the path")
        case socket.gaierror():
            return _away(f"Postgres at {place}: {str(error.strerror).lower()}", "check the host in DATABASE_URL")
        case TimeoutError():
            return _away(f"Postgres at {place} does not answer in time", "check DATABASE_URL and the way there")
        case OSError():
            return _away(f"Postgres at {place} does not answer: {_short(error)}", "check DATABASE_URL; is it running?")
        case asyncpg.ClientConfigurationError() | asyncpg.InterfaceError() | ValueError():
            return _wrong(f"DATABASE_URL cannot be used: {str(error).splitlines()[0]}", "correct it")
    return _away(f"Postgres at {place} failed: {type(error).__name__}: {error}", "see the server's log")


def _wrong(problem: str, advice: str) -> ConfigError:
    return ConfigError(problem, setting="database.url", advice=advice)


def _away(problem: str, advice: str) -> ServiceUnavailable:
    return ServiceUnavailable("postgres", problem, advice=advice)


def _short(error: OSError) -> str:
    # One host name can stand for several addresses, and the client then lists every attempt.
    return "connection refused" if "111" in str(error) or "Connect call failed" in str(error) else str(error)


def _unreadable(url: str) -> str | None:
    """The first file that the URL names and that we cannot read: the client's own error does not say which."""
    query = parse_qs(urlsplit(url).query)
    files = [path for name in ("sslrootcert", "sslcert", "sslkey", "sslcrl") for path in query.get(name, ())]
    return next((path for path in files if not os.access(path, os.R_OK)), None)


def _parts(url: str) -> tuple[str, str, str]:
    """Place, database and user of a URL; never anything that could be part of a password."""
    try:
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        user = unquote(parts.username or "") or query.get("user", ["?"])[0]
        name = unquote(parts.path.lstrip("/")) or query.get("dbname", [user])[0]
        place = parts.netloc.rpartition("@")[2] or query.get("host", ["the default socket"])[0]
    except ValueError:
        return "the given address", "?", "?"
    return place, name, user
