"""The in-memory broker's own process: mock cluster, proxy, and a control channel of JSON lines.

    stdout  {"ready": 12345}                              once, or {"refused": "why"} and the end
    stdin   {"topic": "orders", "partitions": 4}          any number of times
    stdout  {"code": 0}                                   Kafka's error code, one per line of stdin

The end of stdin ends the process: it cannot outlive whoever holds the other end.
"""

import asyncio
import json
import sys

from worker.stack.librdkafka import MockCluster
from worker.stack.proxy import serve


async def main(port: int) -> None:
    cluster = MockCluster()
    try:
        server = await serve(port, cluster.port)
    except OSError as error:
        _say({"refused": str(error)})
        return
    cluster.advertise("127.0.0.1", port)
    _say({"ready": port})
    async with server:
        await asyncio.to_thread(_control, cluster)


def _control(cluster: MockCluster) -> None:
    for line in sys.stdin:
        wanted = json.loads(line)
        _say({"code": cluster.create_topic(wanted["topic"], wanted["partitions"])})


def _say(answer: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
