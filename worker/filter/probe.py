"""Looks at a Redis without changing it: does it let us in, and how fast is it."""

import time
from datetime import timedelta

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

from worker.errors import ConfigError, OnceboxError, ServiceUnavailable
from worker.settings import RedisSettings
from worker.settings.show import mask_url

_PATIENCE = timedelta(seconds=2)


async def ping(settings: RedisSettings) -> timedelta:
    """How long a PING takes on an open connection; OnceboxError says why there is no answer."""
    assert settings.url is not None
    url = settings.url.get_secret_value()
    wait = max(settings.timeout, _PATIENCE).total_seconds()
    try:
        async with Redis.from_url(
            url, socket_timeout=wait, socket_connect_timeout=wait, retry=Retry(NoBackoff(), 0)
        ) as client:
            await client.ping()
            begun = time.monotonic()
            await client.ping()
            return timedelta(seconds=time.monotonic() - begun)
    except (RedisError, OSError, ValueError) as error:
        raise explain_redis_error(error, url) from error


def explain_redis_error(error: Exception, url: str) -> OnceboxError:
    """ConfigError when REDIS_URL is wrong, ServiceUnavailable when trying again may help."""
    place = mask_url(url)
    text = str(error)
    if isinstance(error, (AuthenticationError, NoPermissionError)) or "NOAUTH" in text:
        return _wrong(f"Redis at {place} refused the login: {text}", "correct user and password in REDIS_URL")
    if "CERTIFICATE_VERIFY_FAILED" in text:
        reason = text.partition("certificate verify failed: ")[2].partition(" (_ssl")[0] or "unknown authority"
        return _wrong(
            f"the certificate of Redis at {place} is not trusted: {reason}",
            "add ?ssl_ca_certs=/path/ca.pem to REDIS_URL, and use the host it was issued for",
        )
    if isinstance(error, ValueError):
        return _wrong(f"REDIS_URL ({place}) cannot be used: {text}", "correct it")
    return ServiceUnavailable(
        "redis",
        f"Redis at {place} does not answer: {text or type(error).__name__}",
        advice="check REDIS_URL; rediss:// is for TLS and redis:// for none",
    )


def _wrong(problem: str, advice: str) -> ConfigError:
    return ConfigError(problem, setting="redis.url", advice=advice)
