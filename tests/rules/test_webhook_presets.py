"""The contract of every preset: a retry is the same message, another event is not."""

import pytest

from tests.rules import body_stories, header_stories
from tests.rules.webhooks import Delivery, Story
from worker.errors import RegistrationError
from worker.rules.keys import preset
from worker.rules.presets import PRESETS
from worker.rules.reasons import Refused

STORIES: dict[str, Story] = {**header_stories.STORIES, **body_stories.STORIES}

each_story = pytest.mark.parametrize(("name", "story"), STORIES.items(), ids=STORIES)


def key(name: str, delivery: Delivery) -> bytes | None:
    return preset(name).read(delivery.record, delivery.document)


def test_every_preset_has_a_story() -> None:
    assert set(STORIES) == set(PRESETS)
    assert len(PRESETS) >= 25


@each_story
def test_a_retry_has_the_key_and_the_fingerprint_of_the_original(name: str, story: Story) -> None:
    assert key(name, story.original) == story.key
    assert key(name, story.retry) == story.key
    rule = preset(name).fingerprint
    assert rule.digest(story.original.document) == rule.digest(story.retry.document)


@each_story
def test_another_event_has_another_key(name: str, story: Story) -> None:
    keys = {key(name, delivery) for delivery in (story.original, *story.others)}
    assert None not in keys
    assert len(keys) == 1 + len(story.others)


@each_story
def test_a_forged_payload_under_the_same_key_is_seen(name: str, story: Story) -> None:
    rule = preset(name).fingerprint
    if rule.mode != "off" and isinstance(story.original.body, dict):
        forged = Delivery(story.original.headers, {**story.original.body, "amount": 1_000_000})
        assert rule.digest(forged.document) != rule.digest(story.original.document)


@each_story
def test_a_record_of_someone_else_has_no_key(name: str, story: Story) -> None:
    assert key(name, Delivery({"unrelated": "1"}, {"unrelated": "1"})) is None


@each_story
def test_keys_of_two_presets_never_meet(name: str, story: Story) -> None:
    assert story.key.startswith(name.encode() + b":")
    assert story.key not in {other.key for each, other in STORIES.items() if each != name}


@each_story
def test_headers_are_found_under_the_names_bridges_give_them(name: str, story: Story) -> None:
    if name == "debezium-outbox":
        return
    for prefix in ("http_", "HTTP_", "header.", ""):
        bridged = {prefix + header.replace("-", "_"): value for header, value in story.original.headers.items()}
        assert key(name, Delivery(bridged, story.original.body)) == story.key


def test_the_outbox_takes_no_bridges_name_for_its_own() -> None:
    assert key("debezium-outbox", Delivery({"http_id": "1"}, {})) is None


def test_two_bridged_spellings_must_agree() -> None:
    with pytest.raises(Refused, match="twice"):
        key("github", Delivery({"X-GitHub-Delivery": "1", "http_x_github_delivery": "2"}, {}))


@pytest.mark.parametrize("name", ["sendgrid", "hubspot", "stripe", "cloudevents", "eventbridge"])
@pytest.mark.parametrize("events", [0, 1, 2])
def test_arrays_are_refused_with_the_advice_to_split_them(name: str, events: int) -> None:
    body = STORIES[name].others[0].body if name != "cloudevents" else {"source": "/store", "id": "A234-123"}
    with pytest.raises(Refused, match="split") as refused:
        key(name, Delivery({}, [body] * events))
    assert refused.value.reason == "invalid_key"


def test_cloudevents_in_the_body_have_the_key_of_those_in_headers() -> None:
    structured = Delivery(
        {"content-type": "application/cloudevents+json"}, {"specversion": "1.0", "source": "/store", "id": "A234-123"}
    )
    assert key("cloudevents", structured) == STORIES["cloudevents"].key


def test_adyen_takes_one_item_wherever_it_stands_and_refuses_two() -> None:
    story = STORIES["adyen"]
    assert isinstance(story.original.body, dict)
    (item,) = story.original.body["notificationItems"]
    assert key("adyen", Delivery({}, item)) == story.key
    with pytest.raises(Refused, match="exactly one"):
        key("adyen", Delivery({}, {"notificationItems": [item, item]}))


def test_jira_without_an_address_to_tell_the_site_has_no_key() -> None:
    assert key("jira", Delivery({"X-Atlassian-Webhook-Identifier": "1"}, {"webhookEvent": "x"})) is None


def test_an_id_too_long_with_its_name_space_is_refused() -> None:
    with pytest.raises(Refused, match="512"):
        key("stripe", Delivery({}, {"id": "x" * 510}))


@pytest.mark.parametrize(
    ("wrong", "meant"), [("githb", "github"), ("Stripe", "stripe"), ("shopify_events", "shopify-events")]
)
def test_an_unknown_preset_is_refused_with_the_nearest_names(wrong: str, meant: str) -> None:
    with pytest.raises(RegistrationError) as refused:
        preset(wrong)
    assert meant in str(refused.value)
    assert repr(wrong) in str(refused.value)


def test_an_unknown_preset_like_no_other_lists_them_all() -> None:
    with pytest.raises(RegistrationError) as refused:
        preset("qqqqqqqq")
    assert all(name in str(refused.value) for name in PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_says_why_its_key_is_stable_and_how_it_is_read(name: str) -> None:
    found = preset(name)
    assert found.note.endswith(".")
    assert found.describe().startswith(f"preset({name}: ")
    assert found.parts == (found.rule,)
