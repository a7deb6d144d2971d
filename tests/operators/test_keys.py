"""`oncebox keys`: entries are found by their key alone, listed by state, and settled by an operator."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from tests.cli.command import Answer, complaint
from tests.engine.site import Site
from tests.operators.conftest import Command
from tests.waiting import eventually
from worker import Effect, Registry, Scope, field
from worker.cli import main

SECRET = "a secret of at least thirty-two bytes, hunter2"


class Message(BaseModel):
    """What the tests send."""

    id: str
    shop: str = ""
    fails: bool = False


class Shop:
    """A handler that leaves doubts, one with tenants, and one with private keys."""

    def __init__(self, site: Site) -> None:
        self.charges, self.orders, self.people = site.topic(), site.topic(), site.topic()
        site.extra["ONCEBOX_SCOPE_PEOPLE_SECRET"] = SECRET
        self.registry = Registry()
        self.registry.add(Scope("people", ttl="1h", private_keys=True))
        self.broken = True

        @self.registry.handler(self.charges, scope="payments", key="id", timeout="1s", effect_horizon="1h")
        async def charge(message: Message, effect: Effect) -> dict[str, str]:
            async with effect:
                if message.fails and self.broken:
                    raise RuntimeError("the line broke")
            return {"receipt": message.id}

        @self.registry.handler(self.orders, scope="jobs", key="id", tenant=field("shop"), kind="repeatable")
        async def order(message: Message) -> None: ...

        @self.registry.handler(self.people, scope="people", key="id", kind="repeatable")
        async def greet(message: Message) -> None: ...


def message(id_: str, **more: Any) -> bytes:
    return json.dumps({"id": id_, **more}).encode()


def entries(answer: Answer) -> list[dict[str, Any]]:
    assert answer.code == 0, answer
    found: list[dict[str, Any]] = json.loads(answer.output)["entries"]
    return found


async def test_entries_are_shown_by_their_key_whatever_their_scope_tenant_or_bytes(
    site: Site, command: Command
) -> None:
    shop = Shop(site)
    odd = "naïve \u0000 🎁"
    site.produce(shop.charges, [message("k"), message("broken", fails=True), message("broken", fails=True)])
    site.produce(shop.charges, [message(odd)])
    site.produce(shop.orders, [message("k", shop="north"), message("k", shop="south")])
    site.produce(shop.people, [message("ann@example.org")])
    await site.run(shop.registry)

    found = entries(await command("keys", "show", "k", "--json"))
    named = {(e["scope"], e["operation"], e["tenant"], e["state"]) for e in found}
    assert named == {
        ("payments", "charge", None, "completed"),
        ("jobs", "order", "north", "completed"),
        ("jobs", "order", "south", "completed"),
    }
    [south] = entries(await command("keys", "show", "k", "--tenant", "south", "--json"))
    assert south["tenant"] == "south"
    [by_id] = entries(await command("keys", "show", south["id"], "--json"))
    assert by_id["id"] == south["id"]
    [by_hex] = entries(await command("keys", "show", odd.encode().hex(), "--hex", "--json"))
    assert by_hex["key"] == odd

    [doubtful] = entries(await command("keys", "show", "broken", "--json"))
    assert (doubtful["state"], doubtful["error"], doubtful["held"]) == ("unknown", "RuntimeError", 2)
    assert [p["offset"] for p in doubtful["parked"]] == [1, 2]
    assert doubtful["doubt"]["quiet"] is False
    assert doubtful["source"] == f"{shop.charges}/0@1"
    text = await command("keys", "show", "broken")
    assert all(word in text.output for word in ("unknown since", "next probe", "quiet from", "parked records"))

    [person] = entries(await command("keys", "show", "ann@example.org", "--json", ONCEBOX_SCOPE_PEOPLE_SECRET=SECRET))
    assert (person["private"], person["key"]) == (True, None)
    for wrong, note in (("", "set ONCEBOX_SCOPE_PEOPLE_SECRET"), ("another secret " * 3, "another secret than")):
        blind = await command("keys", "show", "ann@example.org", ONCEBOX_SCOPE_PEOPLE_SECRET=wrong)
        assert (blind.code, note in blind.output) == (1, True), blind
    await site.fetch("DELETE FROM oncebox.entries WHERE id = $1::uuid", south["id"])
    await site.fetch("INSERT INTO oncebox.history (id, event, fence) VALUES ($1::uuid, 'expired', 1)", south["id"])
    [pruned] = entries(await command("keys", "show", "k", "--tenant", "south", "--json"))
    assert (pruned["id"], pruned["state"]) == (south["id"], "expired")
    nothing = await command("keys", "show", "nothing", "--scope", "payments")
    assert (nothing.code, "there is no entry for 'nothing'" in nothing.output) == (1, True)
    assert "did you mean payments?" in complaint(await command("keys", "show", "k", "--scope", "payment"), 64)


async def test_entries_are_listed_by_state_page_by_page(site: Site, command: Command) -> None:
    shop = Shop(site)
    site.produce(shop.charges, [message(f"broken{n}", fails=True) for n in range(5)])
    site.produce(shop.charges, [message(f"fine{n}") for n in range(5)])
    await site.run(shop.registry)

    async def pages(*words: str) -> list[str]:
        seen: list[str] = []
        after: list[str] = []
        while True:
            answer = await command("keys", "list", *words, "--limit", "2", "--json", *after)
            seen += [entry["key"] for entry in entries(answer)]
            place = json.loads(answer.output)["next"]
            if place is None:
                return seen
            after = ["--after", place]

    assert sorted(await pages("--state", "unknown")) == [f"broken{n}" for n in range(5)]
    assert sorted(await pages("--state", "completed", "--scope", "payments")) == [f"fine{n}" for n in range(5)]
    assert await pages("--state", "completed", "--operation", "order") == []
    assert await pages("--older-than", "1h") == []
    assert "no entry is in_progress" in (await command("keys", "list", "--state", "in_progress")).output
    await site.fetch(
        "UPDATE oncebox.doubts SET since = since - interval '2 hours' WHERE id = $1", await id_of(site, "broken3")
    )
    assert await pages("--older-than", "1h") == ["broken3"]
    assert "broken3" in (await command("keys", "list", "--older-than", "1h")).output


async def id_of(site: Site, key: str) -> Any:
    [row] = await site.fetch("SELECT id FROM oncebox.entries WHERE key = $1", key.encode())
    return row["id"]


async def test_an_operator_settles_a_doubt_and_the_parked_records_are_answered(site: Site, command: Command) -> None:
    shop = Shop(site)
    site.produce(shop.charges, [message("done", fails=True), message("undone", fails=True), message("fine")])
    await site.run(shop.registry)
    fence = str(entries(await command("keys", "show", "undone", "--json"))[0]["fence"])
    why = ("--reason", "seen at the gateway")

    refused = complaint(await command("keys", "resolve", "fine", "--executed", "1", *why), 1)
    assert "is completed, not unknown" in refused
    early = complaint(await command("keys", "resolve", "undone", "--not-executed", "--fence", fence, *why), 1)
    assert "--even-though-it-may-still-run" in early
    assert "needs --fence" in complaint(await command("keys", "resolve", "undone", "--not-executed", *why), 64)
    assert "is unknown, not in_progress" in complaint(await command("keys", "release", "done", *why), 1)
    assert await site.count("audit") == 0

    file = site.folder / "result.json"
    file.write_text('{"receipt": 12345678901234567890123}\n')
    dry = await command("keys", "resolve", "done", "--executed", f"@{file}", "--dry-run", *why)
    assert "would become completed" in dry.output
    assert await site.count("audit") == 0
    done = await command("keys", "resolve", "done", "--executed", f"@{file}", *why, ONCEBOX_ACTOR="ann")
    assert "is now completed\n1 parked record(s) of it are tried next" in done.output
    forced = ("--not-executed", "--fence", fence, "--even-though-it-may-still-run")
    ruled = json.loads((await command("keys", "resolve", "undone", *forced, "--json", *why)).output)
    assert (ruled["old_state"], ruled["new_state"], ruled["woken"]) == ("unknown", "failed_retryable", 1)

    shop.broken = False
    async with site.worker(shop.registry):

        async def nothing_parked() -> bool:
            return await site.count("parked") == 0

        await eventually(nothing_parked, 20, "parked records were not tried")
    assert set((await site.states()).values()) == {"completed"}
    [story] = entries(await command("keys", "show", "done", "--result", "--json"))
    assert story["result"] == '{"receipt": 12345678901234567890123}'
    [act] = story["acts"]
    assert (act["actor"], act["action"], act["old_state"], act["new_state"]) == (
        "ann",
        "keys resolve",
        "unknown",
        "completed",
    )


async def test_doubts_are_settled_in_bulk_as_listed_each_with_its_audit(site: Site, command: Command) -> None:
    shop = Shop(site)
    site.produce(shop.charges, [message(f"broken{n}", fails=True) for n in range(4)])
    await site.run(shop.registry)
    bulk = ("keys", "resolve", "--all", "--scope", "payments", "--reason", "the gateway lost its day")
    assert "add --yes" in complaint(await command(*bulk, "--executed", "null"), 64)
    early = json.loads((await command(*bulk, "--not-executed", "--dry-run", "--json")).output)
    assert (len(early["resolved"]), len(early["refused"])) == (0, 4)
    none = await command(*bulk, "--executed", "null", "--older-than", "1h", "--yes")
    assert (none.code, "0 resolved, 0 refused" in none.output) == (0, True)
    await site.fetch(
        "UPDATE oncebox.doubts SET quiet_until = clock_timestamp() WHERE id <> $1", await id_of(site, "broken0")
    )
    done = await command(*bulk, "--not-executed", "--yes")
    assert (done.code, "3 resolved, 1 refused" in done.output) == (1, True), done
    assert "its effect may still happen" in done.output
    assert await site.count("audit") == 3
    states = await site.states()
    assert [states[f"broken{n}"] for n in range(4)] == ["unknown", *["failed_retryable"] * 3]


@pytest.mark.parametrize(
    "words",
    [
        ["keys"],
        ["keys", "resolve", "k", "--reason", "x"],
        ["keys", "resolve", "--executed", "1", "--reason", "x"],
        ["keys", "resolve", "k", "--all", "--executed", "1", "--reason", "x"],
        ["keys", "resolve", "k", "--executed", "1", "--not-executed", "--reason", "x"],
        ["keys", "resolve", "--all", "--state", "completed", "--executed", "1", "--reason", "x"],
        ["keys", "resolve", "--all", "--not-executed", "--fence", "1", "--reason", "x"],
        ["keys", "release", "k"],
        ["keys", "list", "--limit", "0"],
        ["keys", "list", "--state", "strange"],
    ],
)
def test_a_command_that_cannot_work_is_refused_before_anything_is_asked(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 64
