"""Stories of presets whose key is in the body, or partly."""

from typing import Any

from tests.rules.webhooks import Delivery, Story, by_body


def adyen(reference: str, event: str, success: str, reason: str = "") -> dict[str, Any]:
    item = {"pspReference": reference, "eventCode": event, "success": success, "reason": reason}
    return {"live": "false", "notificationItems": [{"NotificationRequestItem": item}]}


def jira(site: str) -> dict[str, Any]:
    return {
        "webhookEvent": "jira:issue_updated",
        "issue": {"id": "7", "self": f"https://{site}.example.net/rest/api/2/7"},
    }


SNS = {
    "Type": "Notification",
    "MessageId": "22b80b92",
    "Message": "hi",
    "Signature": "a=",
    "SigningCertURL": "https://a",
}
PUBSUB = {"message": {"data": "aGk=", "messageId": "136969346945"}, "subscription": "projects/p/subscriptions/s"}
HUBSPOT = {"subscriptionId": 25, "eventId": 100, "objectId": 123, "occurredAt": 1_564_113_600_000, "attemptNumber": 0}

STORIES: dict[str, Story] = {
    "adyen": Story(
        b"adyen:16:799273982640488713:AUTHORISATION4:true",
        Delivery({}, adyen("7992739826404887", "AUTHORISATION", "true", "033899:1111:03/2030")),
        Delivery({}, adyen("7992739826404887", "AUTHORISATION", "true", "sent again")),
        (
            Delivery({}, adyen("7992739826404888", "AUTHORISATION", "true")),
            Delivery({}, adyen("7992739826404887", "CAPTURE", "true")),
            Delivery({}, adyen("7992739826404887", "AUTHORISATION", "false")),
        ),
    ),
    "box": Story(
        b"box:0f358367-88b2",
        Delivery(
            {"BOX-DELIVERY-ID": "f96bb54b", "BOX-DELIVERY-TIMESTAMP": "1"},
            {"type": "webhook_event", "id": "0f358367-88b2"},
        ),
        Delivery(
            {"BOX-DELIVERY-ID": "0a1b2c3d", "BOX-DELIVERY-TIMESTAMP": "2"},
            {"type": "webhook_event", "id": "0f358367-88b2"},
        ),
        (Delivery({"BOX-DELIVERY-ID": "f96bb54b"}, {"type": "webhook_event", "id": "0f358367-88b3"}),),
    ),
    "chargebee": by_body(
        "chargebee:ev_16BHbhF4s42tO2l",
        {"id": "ev_16BHbhF4s42tO2l", "event_type": "invoice_updated", "webhook_status": "scheduled"},
        {"id": "ev_16BHbhF4s42tO2m"},
        webhook_status="re_scheduled",
    ),
    "circle": by_body(
        "circle:d9f1b2a0-1",
        {
            "subscriptionId": "s",
            "notificationId": "d9f1b2a0-1",
            "notificationType": "transactions.inbound",
            "version": 2,
        },
        {"notificationId": "d9f1b2a0-2"},
    ),
    "eventbridge": by_body(
        "eventbridge:6a7e8feb-b491",
        {"id": "6a7e8feb-b491", "source": "my.app", "detail-type": "x", "detail": {}},
        {"id": "6a7e8feb-b492"},
    ),
    "fusionauth": by_body(
        "fusionauth:d34c",
        {"event": {"id": "d34c", "type": "user.create"}},
        {"event": {"id": "d34d", "type": "user.create"}},
    ),
    "gusto": by_body(
        "gusto:edeea5af",
        {"uuid": "edeea5af", "event_type": "company.updated", "timestamp": 1673992164},
        {"uuid": "edeea5b0"},
    ),
    "hubspot": Story(
        b"hubspot:2:253:1003:12313:1564113600000",
        Delivery({"X-HubSpot-Request-Timestamp": "1"}, HUBSPOT),
        Delivery({"X-HubSpot-Request-Timestamp": "2"}, {**HUBSPOT, "attemptNumber": 3}),
        (Delivery({}, {**HUBSPOT, "objectId": 124}), Delivery({}, {**HUBSPOT, "occurredAt": 1_564_113_600_001})),
    ),
    "jira": Story(
        b"jira:5:id-1737:https://acme.example.net/rest/api/2/7",
        Delivery({"X-Atlassian-Webhook-Identifier": "id-17", "X-Atlassian-Webhook-Flow": "Primary"}, jira("acme")),
        Delivery({"X-Atlassian-Webhook-Identifier": "id-17", "X-Atlassian-Webhook-Retry": "1"}, jira("acme")),
        (
            Delivery({"X-Atlassian-Webhook-Identifier": "id-18"}, jira("acme")),
            Delivery({"X-Atlassian-Webhook-Identifier": "id-17"}, jira("other")),
        ),
    ),
    "nylas": by_body(
        "nylas:mock-1",
        {"specversion": "1.0", "type": "grant.created", "id": "mock-1", "webhook_delivery_attempt": 1, "data": {}},
        {"id": "mock-2"},
        webhook_delivery_attempt=2,
    ),
    "paddle": by_body(
        "paddle:evt_01h8",
        {"event_id": "evt_01h8", "event_type": "transaction.paid", "notification_id": "ntf_1", "data": {}},
        {"event_id": "evt_01h9"},
        notification_id="ntf_2",
    ),
    "paypal": Story(
        b"paypal:WH-2WR32451HC0233532",
        Delivery(
            {"PAYPAL-TRANSMISSION-ID": "1", "PAYPAL-TRANSMISSION-TIME": "1"},
            {"id": "WH-2WR32451HC0233532", "event_type": "x"},
        ),
        Delivery(
            {"PAYPAL-TRANSMISSION-ID": "2", "PAYPAL-TRANSMISSION-TIME": "2"},
            {"id": "WH-2WR32451HC0233532", "event_type": "x"},
        ),
        (Delivery({"PAYPAL-TRANSMISSION-ID": "1"}, {"id": "WH-2WR32451HC0233533", "event_type": "x"}),),
    ),
    "pubsub": Story(
        b"pubsub:26:projects/p/subscriptions/s12:136969346945",
        Delivery({}, {**PUBSUB, "deliveryAttempt": 1}),
        Delivery({"Date": "Tue"}, {**PUBSUB, "deliveryAttempt": 2}),
        (
            Delivery({}, {**PUBSUB, "message": {"data": "aGk=", "messageId": "136969346946"}}),
            Delivery({}, {**PUBSUB, "subscription": "projects/p/subscriptions/t"}),
        ),
    ),
    "sendgrid": by_body(
        "sendgrid:ZGVsaXZlcmVk",
        {"sg_event_id": "ZGVsaXZlcmVk", "event": "delivered", "timestamp": 1},
        {"sg_event_id": "b3Blbg"},
    ),
    "slack": Story(
        b"slack:Ev08MFMKH6",
        Delivery(
            {"X-Slack-Request-Timestamp": "1"}, {"type": "event_callback", "event_id": "Ev08MFMKH6", "event_time": 1}
        ),
        Delivery(
            {"X-Slack-Request-Timestamp": "2", "X-Slack-Retry-Num": "1"},
            {"type": "event_callback", "event_id": "Ev08MFMKH6", "event_time": 1},
        ),
        (
            Delivery(
                {"X-Slack-Request-Timestamp": "1"},
                {"type": "event_callback", "event_id": "Ev08MFMKH7", "event_time": 1},
            ),
        ),
    ),
    "sns": Story(
        b"sns:22b80b92",
        Delivery({"x-amz-sns-message-id": "22b80b92", "x-amz-sns-message-type": "Notification"}, SNS),
        Delivery({}, {**SNS, "Signature": "b=", "SigningCertURL": "https://b"}),
        (Delivery({}, {**SNS, "MessageId": "22b80b93"}), Delivery({"x-amz-sns-message-id": "22b80b94"}, SNS)),
    ),
    "square": by_body(
        "square:6a8f5f28",
        {"merchant_id": "m", "type": "payment.updated", "event_id": "6a8f5f28"},
        {"event_id": "6a8f5f29"},
    ),
    "stripe": by_body(
        "stripe:evt_1NG8Du2eZvKYlo2C",
        {"id": "evt_1NG8Du2eZvKYlo2C", "type": "charge.succeeded", "pending_webhooks": 2, "data": {}},
        {"id": "evt_1NG8Du2eZvKYlo2D"},
        pending_webhooks=1,
    ),
}
