"""Everything the commands import when they are used, imported once: what is forked from here starts at once."""

import rich.console
import rich.progress
import rich.table
import uvloop

import worker.app.forecast
import worker.app.redriving
import worker.app.resuming
import worker.cli.dlq
import worker.cli.jobs
import worker.cli.loading
import worker.cli.replay
import worker.cli.reports

__all__ = ["rich", "uvloop", "worker"]
