"""What cannot be replayed is said in one clear message, with the exit code that is documented."""

import sys
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from tests.backlog.process import Desk
from tests.backlog.shop import body
from tests.cli.command import complaint
from tests.engine.site import Site
from tests.stack.client import Sent
from worker.cli import main

MODULE = """
from worker import Registry
registry = Registry()

@registry.handler("{topic}", scope="jobs", key="id", kind="repeatable")
async def order(message: dict) -> None: ...
"""


@pytest.fixture
def desk(site: Site) -> Desk:
    topic = site.topic(2)
    made = Desk(site, MODULE.format(topic=topic))
    made.topic = topic
    return made


async def test_a_window_without_records_is_no_error(desk: Desk) -> None:
    desk.site.produce(desk.topic, [Sent(body("k"), partition=0)])
    answer = await desk.type("replay", desk.topic, "shop", "--since", "1h")
    assert answer.code == 0, answer
    assert "has no place yet" in answer.output
    desk.site.put_group(desk.topic, {0: 1, 1: 0})
    answer = await desk.type("replay", desk.topic, "shop", "--since", "2100-01-01T00:00:00Z")
    assert answer.code == 0, answer
    assert "no record" in answer.output
    assert await desk.site.count("jobs") == 0


WRONG = {
    "is not after --since": ("replay", "t", "shop", "--since", "1h", "--until", "2h"),
    "is no time": ("replay", "t", "shop", "--since", "yesterday"),
    "has no zone": ("replay", "t", "shop", "--since", "2026-01-01T00:00:00"),
    "from when on": ("replay", "t", "shop"),
    "which topic": ("replay",),
    "two beginnings": ("replay", "t", "shop", "--since", "1h", "--from-offset", "1"),
    "one partition only": ("replay", "t", "shop", "--from-offset", "1"),
    "not above --from-offset": ("replay", "t", "shop", "--partition", "0", "--from-offset", "5", "--to-offset", "5"),
    "there is no handler refund": ("replay", "t", "shop", "--since", "1h", "--handler", "refund"),
    "--reason is empty": ("replay", "t", "shop", "--since", "1h", "--run-beyond-ttl"),
    "cannot be read: No such file": ("replay", "shop", "--file", "absent.jsonl", "--handler", "order"),
    "cannot be read: Is a directory": ("replay", "shop", "--file", ".", "--handler", "order"),
    "whose records": ("replay", "shop", "--file", "absent.jsonl"),
    "the job's own window": ("replay", "shop", "--resume", "1", "--since", "1h"),
    "is no place": ("dlq", "show", "t", "five"),
}


@pytest.mark.parametrize("words", WRONG)
def test_a_command_line_that_cannot_work_is_refused_before_anything_is_asked(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shop.py").write_text(MODULE.format(topic="t"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
    with pytest.raises(SystemExit) as ended:
        main(WRONG[words])
    assert ended.value.code == 64
    assert words in capsys.readouterr().err


async def test_what_is_not_there_is_named(desk: Desk) -> None:
    other = MODULE.replace("from worker import Registry\nregistry = Registry()", "").replace("order", "other")
    (desk.folder / "shop.py").write_text(MODULE.format(topic=desk.topic) + other.format(topic="nowhere"))
    typed = {
        "has no topic nowhere": ("replay", "nowhere", "shop", "--since", "1h"),
        "no handler reads": ("replay", f"dlq.{desk.topic}", "shop", "--since", "1h"),
        "has no partition 7": ("replay", desk.topic, "shop", "--since", "1h", "--partition", "7"),
        "there is no job 99": ("replay", "shop", "--resume", "99"),
        "there is no job 98": ("jobs", "show", "98"),
        "no dead letter at": ("dlq", "show", desk.topic, "0@5"),
    }
    for words, command in typed.items():
        said = complaint(await desk.type(*command), 64)
        assert words in said, (command, said)


async def test_retention_that_removed_a_part_is_told_with_the_range(desk: Desk) -> None:
    site, topic = desk.site, desk.topic
    site.produce(topic, [Sent(body(f"k{n}"), partition=0, timestamp_ms=1_700_000_000_000 + n) for n in range(10)])
    site.put_group(topic, {0: 10, 1: 0})
    for future in site.admin.delete_records([TopicPartition(topic, 0, 6)]).values():
        future.result(10)
    typed = ("replay", topic, "shop", "--since", "2020-01-01T00:00:00Z")
    told = await desk.type(*typed, "--dry-run")
    assert told.code == 0, told
    assert f"{topic}/0: retention has removed offsets 0 to 5" in told.output
    assert '"run":4' in told.output
    refused = await desk.type(*typed)
    assert "part of the window is gone" in complaint(refused, 64)
    assert "removed offsets 0 to 5" in refused.output
    assert "2023-11-14" in refused.output, "what is left begins there"
    by_offset = await desk.type("replay", topic, "shop", "--partition", "0", "--from-offset", "2")
    assert "removed offsets 2 to 5" in by_offset.output
    assert by_offset.code == 64
    rest = await desk.type(*typed, "--partial")
    assert rest.code == 0, rest
    assert '"executed":4' in rest.output


async def test_jobs_are_listed_and_shown(desk: Desk) -> None:
    desk.site.produce(desk.topic, [body("a"), body("b")])
    assert (await desk.type("replay", desk.topic, "shop", "--since", "1h", "--until", "now")).code == 0
    listed = await desk.type("jobs", "list")
    assert listed.code == 0, listed
    assert desk.topic in listed.output
    assert "2/2" in listed.output
    shown = await desk.type("jobs", "show", "1", "--json")
    assert '"state": "done"' in shown.output
    assert '"executed": 2' in shown.output
    assert "executed 2" in (await desk.type("jobs", "show", "1")).output
    assert "it is done" in complaint(await desk.type("jobs", "cancel", "1", "--reason", "late"), 64)
    assert "job 1 is done" in complaint(await desk.type("replay", "shop", "--resume", "1"), 64)
