"""Kafka delivers: the consumer group, the publisher, and how to be let in. The only room that knows aiokafka."""
