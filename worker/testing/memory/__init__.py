"""A ledger in memory: what Postgres decides, decided by dictionaries. No I/O, and time is a clock you hold.

It is proven to agree with Postgres by one conformance suite that runs on both. Each call is atomic and is followed by
one turn of the loop, as an answer over the network would be.
"""
