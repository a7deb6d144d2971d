"""A process of its own that starts a stack and holds it: `python -m tests.stack.holder '["redis"]'`.

It prints one JSON line when the stack answers, then obeys lines on stdin: "pause NAME". Ctrl-C and the
end of stdin end it in order; SIGKILL is what the tests do to it.
"""

import json
import sys

from worker.stack import start


def main(names: list[str]) -> None:
    with start(names, say=lambda text: print(text, file=sys.stderr)) as stack:
        servers = {server.name: server.pid for server in stack.servers}
        services = {service.name: [service.how, service.url] for service in stack.services}
        folder = str(stack.servers[0].log_file.parent) if stack.servers else ""
        print(json.dumps({"servers": servers, "services": services, "folder": folder}), flush=True)
        for line in sys.stdin:
            stack.server(line.split()[1]).pause()
            print("paused", flush=True)


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except KeyboardInterrupt:
        sys.exit(130)
