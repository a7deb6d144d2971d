"""What oncebox costs beside what people would write instead: `python -m tests.bench [--quick]`.

Every run is a process of its own on one local stack, contenders take turns, and what they claim to have done is counted
in the database. On a shared machine believe the ratios inside one round and the CPU per message, not the rates.
"""
