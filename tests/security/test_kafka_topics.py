"""The admin client raises nothing; ours does."""

import secrets

import pytest

from worker.errors import ConfigError, ServiceUnavailable
from worker.kafka.topics import checked, open_topics
from worker.settings import KafkaSettings


async def test_topics_are_created_once_found_and_read(kafka: str) -> None:
    name = f"t-{secrets.token_hex(4)}"
    async with open_topics(KafkaSettings(bootstrap_servers=kafka)) as topics:
        assert await topics.missing([name]) == [name]
        assert await topics.missing([name]) == [name], "asking created it"
        await topics.create({name: 3}, config={"retention.ms": "60000"})
        await topics.create({name: 5})
        assert await topics.partitions([name, name + "x"]) == {name: 3}
        assert (await topics.config([name]))[name]["retention.ms"] == "60000"
        assert await topics.partitions([]) == {}
        assert await topics.config([]) == {}


async def test_every_refusal_is_raised(kafka: str) -> None:
    async with open_topics(KafkaSettings(bootstrap_servers=kafka)) as topics:
        with pytest.raises(ConfigError, match="code 38"):
            await topics.create({f"t-{secrets.token_hex(4)}": 1}, replicas=99)
        with pytest.raises(ConfigError, match="code 17"):
            await topics.create({"not a name": 1})
        with pytest.raises(ConfigError, match="code 17"):
            await topics.missing(["not a name"])
        with pytest.raises(ServiceUnavailable, match="code 3"):
            await topics.config(["t-never-created"])


def test_a_code_is_found_however_deep_it_lies() -> None:
    answer = [{"topics": [{"topic": "a", "error_code": 0, "partitions": [{"error_code": 29, "error_message": None}]}]}]
    with pytest.raises(ConfigError, match="code 29"):
        checked(answer)
    assert checked(answer, allowed=(29,)) is answer
