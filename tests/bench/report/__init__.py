"""What was measured, as tables, plots and JSON."""

from tests.bench.report.report import Report

__all__ = ["Report"]
