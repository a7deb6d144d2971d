"""Calling a handler and judging how it ended. How it ends decides; nothing else does."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from worker.engine.items import Item
from worker.engine.ports import Lease, Transactions
from worker.errors import NotExecuted, Reject, ServiceUnavailable
from worker.rules.claims import Blocks, Ending, Kind, State, after
from worker.rules.context import Context, Effect, Settle, Transaction
from worker.rules.handlers import Handler
from worker.rules.identity import effect_key
from worker.rules.results import Result, encode_as, rejected


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A handler that ended without a result."""

    state: State  # failed_retryable or unknown
    error: str
    counts: bool = True  # False: nothing was started, so it is no attempt

    @property
    def cause(self) -> str:
        """What equal failures have in common: their class, or that nobody knows what happened."""
        return "in doubt" if self.state is State.UNKNOWN else self.error.partition(":")[0]


@dataclass(slots=True)
class Committed:
    """A transactional handler whose completion is committed already."""

    result: Result


class Superseded:
    """Someone else decided about the claim while its handler ran; nothing of it was committed."""


class _TooLate(NotExecuted):
    """While a handler waited for its thread or connection, its worker stopped, or lost its lease or the partition."""


Ended = Result | Unfinished | Committed | Superseded


class Caller:
    """Calls handlers with what they ask for."""

    def __init__(
        self,
        lease: Lease,
        transactions: Transactions,
        *,
        resources: Any,
        result_limit: int,
        threads: int,
        clock: Callable[[], float],
        log: Callable[[Item], Any],
        settle: Settle,
    ) -> None:
        self.stopping = False
        self._covers = lease.covers
        self._transactions = transactions
        self._resources = resources
        self._limit = result_limit
        self._clock = clock
        self._log = log
        self._settle = settle
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="oncebox-handler")

    async def call(self, item: Item) -> Ended:
        """Run the item's handler to its real end. Never raises; a cancel is an end like any other."""
        route = item.route
        blocks: Blocks | None = None
        effect: Effect | None = None
        try:
            if route.transactional:
                return await self._in_transaction(item)
            if route.declares_effect:
                blocks = Blocks()
                may_start = functools.partial(self._covers, item.fence)
                effect = Effect(blocks, route.handler.not_executed, may_start)
            value = await self._run(item, effect, None)
        except Reject as reject:
            return rejected(_text(reject), str(getattr(reject, "code", "rejected")))
        except BaseException as error:
            refused = effect is not None and effect.refused
            return _unfinished(error, route.handler, blocks, refused=refused)
        return self._result(item, value)

    def _run(self, item: Item, effect: Effect | None, transaction: Transaction | None) -> Awaitable[Any]:
        handler = item.route.handler
        arguments = [item.message]
        for wanted in handler.injected:
            if wanted is Context:
                arguments.append(self.context(item))
            else:
                arguments.append(effect if wanted is Effect else transaction)
        if handler.is_async:
            return handler.function(*arguments)  # type: ignore[no-any-return]
        return self._in_thread(functools.partial(copy_context().run, self._begin, item, arguments))

    def _begin(self, item: Item, arguments: list[Any]) -> Any:
        """In the thread, when it is free at last: the lease is asked again, and only now the handler's time begins."""
        self._ask_again(item)
        item.deadline = self._clock() + item.route.timeout
        return item.route.handler.function(*arguments)

    def _ask_again(self, item: Item) -> None:
        """Whether a handler may begin, now that it has the thread or connection it waited for."""
        if self.stopping or item.revoked or not self._covers(item.fence):
            raise _TooLate

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        """A thread cannot be stopped: a cancel is noted, and the end is awaited all the same."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, call)
        while not future.done():
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError:
                continue
            except BaseException:  # noqa: S112 - raised again by the result below
                continue
        return future.result()

    async def _in_transaction(self, item: Item) -> Ended:
        async def body(transaction: Transaction) -> Result:
            self._ask_again(item)
            # Only now: waiting for a free connection is not the handler's time.
            item.deadline = self._clock() + item.route.timeout
            return self._result(item, await self._run(item, None, transaction))

        try:
            result = await self._transactions.run(item.id, item.fence, body)
        except ServiceUnavailable as error:
            return Unfinished(State.FAILED_RETRYABLE, describe(error), counts=False)
        return Superseded() if result is None else Committed(result)

    def _result(self, item: Item, value: Any) -> Result:
        return encode_as(item.route.handler.scope.results, value, self._limit)

    def context(self, item: Item, *, record: bool = True) -> Context:
        """What a handler or reconciler may know; without `record` the record itself cannot be had any more."""
        handler = item.route.handler
        return Context(
            key="(private)" if item.route.private else item.key.decode(),
            scope=handler.scope.name,
            operation=handler.operation,
            tenant=None if item.tenant is None else item.tenant.decode(),
            attempt=item.attempts + item.crashes + 1,
            fence=item.fence,
            out_of_order=item.out_of_order,
            record=item.record if record else None,
            resources=self._resources,
            effect_key=functools.partial(effect_key, item.id),
            log=functools.partial(self._log, item),
            settle=self._settle,
            since=item.claimed_at,
        )

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _unfinished(error: BaseException, handler: Handler, blocks: Blocks | None, *, refused: bool) -> Unfinished:
    """What an exception means: the blocks that were entered, and how they were left, are the witness."""
    proof = isinstance(error, handler.not_executed)
    if blocks is None:
        # Without blocks of its own an external handler is one whole block.
        whole = int(handler.kind is Kind.EXTERNAL)
        blocks = Blocks(entered=whole, proven=whole if proof else 0)
    if not proof:
        return Unfinished(after(handler.kind, Ending.FAILED, blocks), describe(error))
    if (refused and blocks.entered == 0) or isinstance(error, _TooLate):
        return Unfinished(State.FAILED_RETRYABLE, "the lease was not safe", counts=False)
    return Unfinished(after(handler.kind, Ending.NOT_EXECUTED, blocks), describe(error))


def describe(error: BaseException) -> str:
    """An error as one short line without its arguments' values: messages leak secrets, class names do not."""
    name = type(error).__name__
    return f"{name}: {_text(error)}"[:200] if isinstance(error, NotExecuted) else name


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # an author's own __str__: the worker must not end because of it
        return type(error).__name__
