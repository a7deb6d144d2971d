"""The demo: two workers, thousands of duplicates, one kill -9, and a count of what really happened.

It plays a sender, an operator and an auditor around ordinary `oncebox run` processes. What happened is counted where it
happened (the gateway's book, the orders table, the index's book), never by what the workers say about themselves.
Only `oncebox demo` imports this package.
"""
