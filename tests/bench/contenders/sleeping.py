"""The floor for handlers that wait: the same waits, in the same order per key, in bare asyncio."""

import asyncio
from collections import defaultdict

import uvloop

from tests.bench.job import Job
from tests.bench.messages import waits
from tests.bench.stopwatch import Stopwatch


async def work(job: Job, watch: Stopwatch) -> None:
    lines: dict[int, list[float]] = defaultdict(list)
    for line, _, seconds in waits(job.messages, job.options["lines"]):
        lines[line].append(seconds)
    places = asyncio.Semaphore(job.options["concurrency"])

    async def one_after_another(line: list[float]) -> None:
        for seconds in line:
            async with places:
                await asyncio.sleep(seconds)

    watch.start()
    async with asyncio.TaskGroup() as group:
        for each in lines.values():
            group.create_task(one_after_another(each))
    watch.lap()


def main() -> None:
    job = Job.from_environment()
    watch = Stopwatch(job.limit)
    uvloop.run(work(job, watch))
    watch.tell(messages=job.messages, calls=0)


if __name__ == "__main__":
    main()
