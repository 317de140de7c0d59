"""`eos-replicate demo` and `demo-spark`: brokers, load and replicator as processes that are killed, and a comparison.

The comparison reads both brokers with consumers of its own and shares no code with the replicator.
"""
