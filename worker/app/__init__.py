"""The composition root: opens everything in order, wires it, supervises it, and stops it in the opposite order.

`opening` makes an engine without a source of records; `serving` feeds it from a consumer group; `process` is what every
long-lived command shares: logs, event loop, signals.
"""

from worker.app.process import run_until_signalled
from worker.app.serving import run, serve

__all__ = ["run", "run_until_signalled", "serve"]
