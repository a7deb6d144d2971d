"""Repeatable: indexing a document twice does no harm, so after a crash it is simply done again."""

from collections.abc import AsyncIterator

from pydantic import BaseModel

from worker import Context, Registry, field, header

from .index import Index

registry = Registry()


class Document(BaseModel):
    """What the webhook says."""

    delivery_id: str
    document_id: str
    text: str


@registry.lifespan
async def open_index() -> AsyncIterator[dict[str, Index]]:
    """The index that all messages of this worker share."""
    yield {"index": Index()}


@registry.handler(
    "search.documents", scope="webhooks", key=header("Idempotency-Key") | field("delivery_id"), kind="repeatable"
)
async def index_document(message: Document, context: Context) -> None:
    """Put the document into the index."""
    await context.resources["index"].put(message.document_id, message.text)
