"""Stories of presets whose key is in headers."""

from tests.rules.webhooks import Delivery, Story, by_header

STORIES: dict[str, Story] = {
    "cloudevents": Story(
        b"cloudevents:6:/store8:A234-123",
        Delivery(
            {"ce_specversion": "1.0", "ce_source": "/store", "ce_id": "A234-123", "traceparent": "00-1"}, b"<xml/>"
        ),
        Delivery(
            {"ce_specversion": "1.0", "ce_source": "/store", "ce_id": "A234-123", "traceparent": "00-2"}, b"<xml/>"
        ),
        (
            Delivery({"ce_source": "/store", "ce_id": "A234-124"}, b"<xml/>"),
            Delivery({"ce_source": "/stock", "ce_id": "A234-123"}, b"<xml/>"),
        ),
    ),
    "contentful": by_header(
        "contentful:c0ffee",
        "X-Contentful-Idempotency-Key",
        "c0ffee",
        first={"X-Contentful-Topic": "ContentManagement.Entry.publish"},
        again={"X-Contentful-Attempt": "2"},
    ),
    "debezium-outbox": by_header(
        "debezium-outbox:406c07f3",
        "id",
        "406c07f3",
        first={"eventType": "OrderCreated"},
        again={"eventType": "OrderCreated"},
    ),
    "github": by_header(
        "github:72d3162e-cc78-11e3-81ab-4c9367dc0958",
        "X-GitHub-Delivery",
        "72d3162e-cc78-11e3-81ab-4c9367dc0958",
        first={"X-GitHub-Hook-ID": "1", "User-Agent": "GitHub-Hookshot/1"},
        again={"X-GitHub-Hook-ID": "2", "User-Agent": "GitHub-Hookshot/2"},
    ),
    "gitlab": Story(
        b"gitlab:f5e5f430",
        Delivery(
            {"Idempotency-Key": "f5e5f430", "X-Gitlab-Event-UUID": "13792a34", "X-Gitlab-Webhook-UUID": "1"},
            {"object_kind": "push"},
        ),
        Delivery(
            {"Idempotency-Key": "f5e5f430", "X-Gitlab-Event-UUID": "99999999", "X-Gitlab-Webhook-UUID": "2"},
            {"object_kind": "push"},
        ),
        (
            Delivery({"Idempotency-Key": "f5e5f431", "X-Gitlab-Event-UUID": "13792a34"}, {"object_kind": "push"}),
            Delivery({"X-Gitlab-Event-UUID": "13792a34"}, {"object_kind": "push"}),
        ),
    ),
    "hookdeck": by_header(
        "hookdeck:evt_1",
        "x-hookdeck-eventid",
        "evt_1",
        first={"x-hookdeck-attempt-count": "1"},
        again={"x-hookdeck-attempt-count": "2"},
    ),
    "idempotency-key": Story(
        b"idempotency-key:8e03978e",
        Delivery({"Idempotency-Key": '"8e03978e"'}, {"amount": 1}),
        Delivery({"idempotency-key": "8e03978e"}, {"amount": 1.0}),
        (Delivery({"Idempotency-Key": '"8e03978f"'}, {"amount": 1}),),
    ),
    "linear": Story(
        b"linear:234d1a4e",
        Delivery(
            {"Linear-Delivery": "234d1a4e", "Linear-Signature": "1"},
            {"action": "create", "webhookTimestamp": 1676056940508},
        ),
        Delivery(
            {"Linear-Delivery": "234d1a4e", "Linear-Signature": "2"},
            {"action": "create", "webhookTimestamp": 1676057000000},
        ),
        (Delivery({"Linear-Delivery": "234d1a4f"}, {"action": "create", "webhookTimestamp": 1676056940508}),),
    ),
    "pandadoc": Story(
        b"pandadoc:e-1",
        Delivery({"X-PandaDoc-Webhook-Event-Id": "e-1"}, [{"event": "document_state_changed"}]),
        Delivery({"X-PandaDoc-Webhook-Event-Id": "e-1", "Date": "Tue"}, [{"event": "document_state_changed"}]),
        (Delivery({"X-PandaDoc-Webhook-Event-Id": "e-2"}, [{"event": "document_state_changed"}]),),
    ),
    "prolific": by_header(
        "prolific:e1",
        "X-Event-ID",
        "e1",
        first={"X-Prolific-Request-Timestamp": "1"},
        again={"X-Prolific-Request-Timestamp": "2"},
    ),
    "razorpay": by_header(
        "razorpay:ev1", "x-razorpay-event-id", "ev1", first={"Request-Id": "1"}, again={"Request-Id": "2"}
    ),
    "shopify": Story(
        b"shopify:18:98880550-7158-44d411:orders/paid",
        Delivery(
            {"X-Shopify-Event-Id": "98880550-7158-44d4", "X-Shopify-Topic": "orders/paid", "X-Shopify-Webhook-Id": "1"},
            {"id": 1},
        ),
        Delivery(
            {"X-Shopify-Event-Id": "98880550-7158-44d4", "X-Shopify-Topic": "orders/paid", "X-Shopify-Webhook-Id": "2"},
            {"id": 1},
        ),
        (
            Delivery({"X-Shopify-Event-Id": "98880550-7158-44d5", "X-Shopify-Topic": "orders/paid"}, {"id": 1}),
            Delivery({"X-Shopify-Event-Id": "98880550-7158-44d4", "X-Shopify-Topic": "orders/updated"}, {"id": 1}),
        ),
    ),
    "shopify-events": by_header(
        "shopify-events:w1",
        "Shopify-Webhook-Id",
        "w1",
        first={"Shopify-Triggered-At": "1"},
        again={"Shopify-Triggered-At": "1"},
    ),
    "standard-webhooks": by_header(
        "standard-webhooks:msg_2Yh",
        "webhook-id",
        "msg_2Yh",
        first={"webhook-timestamp": "1", "webhook-signature": "v1,a"},
        again={"webhook-timestamp": "2", "webhook-signature": "v1,b"},
    ),
    "svix": by_header(
        "svix:msg_p5jX", "svix-id", "msg_p5jX", first={"svix-timestamp": "1"}, again={"svix-timestamp": "2"}
    ),
    "twilio": Story(
        b"twilio:8a2b",
        Delivery({"I-Twilio-Idempotency-Token": "8a2b"}, b"SmsSid=SM1&SmsStatus=sent"),
        Delivery({"I-Twilio-Idempotency-Token": "8a2b", "X-Twilio-Signature": "2"}, b"SmsSid=SM1&SmsStatus=sent"),
        (Delivery({"I-Twilio-Idempotency-Token": "8a2c"}, b"SmsSid=SM1&SmsStatus=delivered"),),
    ),
    "twitch": by_header(
        "twitch:befa7b53",
        "Twitch-Eventsub-Message-Id",
        "befa7b53",
        first={"Twitch-Eventsub-Message-Retry": "0"},
        again={"Twitch-Eventsub-Message-Retry": "1"},
    ),
    "woocommerce": Story(
        b"woocommerce:1:78:d41d8cd9",
        Delivery({"X-WC-Webhook-ID": "7", "X-WC-Webhook-Delivery-ID": "d41d8cd9"}, {"id": 1}),
        Delivery({"X-WC-Webhook-ID": "7", "X-WC-Webhook-Delivery-ID": "d41d8cd9", "Date": "Tue"}, {"id": 1}),
        (Delivery({"X-WC-Webhook-ID": "8", "X-WC-Webhook-Delivery-ID": "d41d8cd9"}, {"id": 1}),),
    ),
    "zendesk": Story(
        b"zendesk:01G0",
        Delivery(
            {"X-Zendesk-Webhook-Invocation-Id": "01G0", "X-Zendesk-Webhook-Signature-Timestamp": "1"}, {"id": "e1"}
        ),
        Delivery(
            {"X-Zendesk-Webhook-Invocation-Id": "01G0", "X-Zendesk-Webhook-Signature-Timestamp": "2"}, {"id": "e1"}
        ),
        (Delivery({"X-Zendesk-Webhook-Invocation-Id": "01G1"}, {"id": "e1"}), Delivery({}, {"id": "e1"})),
    ),
}
