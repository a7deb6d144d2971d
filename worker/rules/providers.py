"""Where webhook providers put the id that stays the same over their retries, and what of the payload stays, too."""

from dataclasses import dataclass
from typing import Final

from worker.rules.fingerprint import FingerprintRule
from worker.rules.headers import Header
from worker.rules.paths import ONLY, Path
from worker.rules.sources import Field, KeyRule, as_rule

_WHOLE: Final = FingerprintRule()


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider: its key, why that key is stable, and which fields a retry may change."""

    rule: KeyRule
    note: str
    fingerprint: FingerprintRule = _WHOLE


def _header(name: str) -> KeyRule:
    return Header(name, bridged=True)


def _body(path: str) -> KeyRule:
    return as_rule(path)


def _without(*fields: str) -> FingerprintRule:
    return FingerprintRule(exclude=fields)


def _adyen(*above: str) -> KeyRule:
    item = (*above, "NotificationRequestItem")
    return Field(Path((*item, "pspReference"))) + Field(Path((*item, "eventCode"))) + Field(Path((*item, "success")))


_JIRA_SITE: Final = (
    _body("issue.self") | "comment.self" | "worklog.self" | "project.self" | "version.self" | "sprint.self"
    | "board.self" | "user.self"
)  # fmt: skip

PROVIDERS: Final[dict[str, Provider]] = {
    "adyen": Provider(
        _adyen("notificationItems", ONLY) | _adyen(),
        "There is no delivery id: the payment's reference, the event and its success are the event. Other fields of a "
        "duplicate may differ, so no fingerprint is taken. More than one item in a notification is refused.",
        FingerprintRule(mode="off"),
    ),
    "box": Provider(_body("id"), "The body's id; BOX-DELIVERY-ID changes with each retry."),
    "chargebee": Provider(
        _body("id"),
        "The event's id; the state of its webhooks changes with each attempt.",
        _without("webhook_status", "webhooks"),
    ),
    "circle": Provider(_body("notificationId"), "Reused when the delivery is retried."),
    "cloudevents": Provider(
        (_header("ce_source") + _header("ce_id")) | (_body("source") + _body("id")),
        "Source and id together name an event, in headers (binary mode) or in the body (structured mode).",
    ),
    "contentful": Provider(_header("X-Contentful-Idempotency-Key"), "The same for all attempts at one webhook call."),
    "debezium-outbox": Provider(Header("id"), "The id of the outbox row, written once by the service."),
    "eventbridge": Provider(_body("id"), "The event's id; a producer that puts an event twice gets two ids."),
    "fusionauth": Provider(_body("event.id"), "The event's id, the same for every webhook and attempt."),
    "github": Provider(
        _header("X-GitHub-Delivery"), "One per event, shared by redeliveries and by every hook on the event."
    ),
    "gitlab": Provider(
        _header("Idempotency-Key") | _header("X-Gitlab-Event-UUID"),
        "Idempotency-Key stays over retries; older servers send the event's UUID only, which hooks that trigger each "
        "other share.",
    ),
    "gusto": Provider(_body("uuid"), "The event's uuid, constant over retries."),
    "hookdeck": Provider(_header("X-Hookdeck-EventID"), "The event's id, the same for all its attempts."),
    "hubspot": Provider(
        _body("subscriptionId") + "eventId" + "objectId" + "occurredAt",
        "eventId alone is not unique. HubSpot sends arrays: split them upstream into one record per event.",
        _without("attemptNumber"),
    ),
    "idempotency-key": Provider(_header("Idempotency-Key"), "Chosen by the client, who repeats it when retrying."),
    "jira": Provider(
        _header("X-Atlassian-Webhook-Identifier") + _JIRA_SITE,
        "Unchanged on retry but unique per site only, so the address of the entity it is about joins it.",
    ),
    "linear": Provider(
        _header("Linear-Delivery"), "One per event; the time of sending is not.", _without("webhookTimestamp")
    ),
    "nylas": Provider(
        _body("id"), "Constant over retries; the attempt is counted beside it.", _without("webhook_delivery_attempt")
    ),
    "paddle": Provider(
        _body("event_id"), "The event's id; notification_id names the delivery.", _without("notification_id")
    ),
    "pandadoc": Provider(_header("X-PandaDoc-Webhook-Event-Id"), "Stable over automatic and manual retries."),
    "paypal": Provider(_body("id"), "The event's id (WH-…); PAYPAL-TRANSMISSION-ID names the transmission."),
    "prolific": Provider(_header("X-Event-ID"), "One per event, the same over retries."),
    "pubsub": Provider(
        _body("subscription") + (_body("message.messageId") | "message.message_id"),
        "Unique per topic, so the subscription joins it. A publisher that sends twice gets two ids: if that matters, "
        "use an attribute of its own.",
        _without("deliveryAttempt"),
    ),
    "razorpay": Provider(_header("X-Razorpay-Event-Id"), "One per event, the same over retries."),
    "sendgrid": Provider(
        _body("sg_event_id"), "SendGrid sends arrays: split them upstream into one record per event."
    ),
    "shopify": Provider(
        _header("X-Shopify-Event-Id") + _header("X-Shopify-Topic"),
        "Topics share one event id, so the topic joins it; X-Shopify-Webhook-Id names the delivery.",
    ),
    "shopify-events": Provider(_header("Shopify-Webhook-Id"), "The header of Shopify's newer Events API."),
    "slack": Provider(_body("event_id"), "One per event; X-Slack-Retry-Num counts its retries."),
    "sns": Provider(
        _header("x-amz-sns-message-id") | "MessageId",
        "The published message's id, reused on retry; signatures may be made anew.",
        _without("Signature", "SignatureVersion", "SigningCertURL", "UnsubscribeURL"),
    ),
    "square": Provider(_body("event_id"), "One per event, the same over retries."),
    "standard-webhooks": Provider(_header("webhook-id"), "The specification makes it the idempotency key."),
    "stripe": Provider(
        _body("id"),
        "The event's id (evt_…), the same over retries; it counts down the webhooks still pending.",
        _without("pending_webhooks"),
    ),
    "svix": Provider(_header("svix-id"), "One per message, the same over retries."),
    "twilio": Provider(_header("I-Twilio-Idempotency-Token"), "One per webhook, the same over retries."),
    "twitch": Provider(_header("Twitch-Eventsub-Message-Id"), "The same when a message is sent again."),
    "woocommerce": Provider(
        _header("X-WC-Webhook-ID") + _header("X-WC-Webhook-Delivery-ID"), "One per delivery of one webhook."
    ),
    "zendesk": Provider(
        _header("X-Zendesk-Webhook-Invocation-Id") | "id", "One per invocation; without the header the event's id."
    ),
}  # fmt: skip
