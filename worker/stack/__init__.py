"""Kafka, Postgres and Redis for demo and tests: from the environment, from Docker, or as processes of our own.

`start` decides per service, says what it chose and why, and gives a `Stack`. Whatever it started
ends with this process, however this process ends. Nothing in production imports this package.
"""

from worker.stack.server import LocalServer
from worker.stack.service import KafkaOptions, Service
from worker.stack.stack import Stack, start

__all__ = ["KafkaOptions", "LocalServer", "Service", "Stack", "start"]
