"""The engine: moves records from fetched to finished. It knows Kafka and Postgres only through `ports`.

A record's way, once through the house:

    consumer -> intake (decode, route, key, fingerprint) -> strands (order per key) -> claimer -> runners -> finisher
             -> watermark -> consumer commits

Everything runs in one event loop. Between two awaits nothing else moves, so state changes need no locks; every await is
a point where a rebalance, a late answer or a stop may have come in between, and the code after it checks again.
"""
