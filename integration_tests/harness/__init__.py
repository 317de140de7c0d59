"""What the integration tests stand on: brokers, a fault-injecting proxy, the replicator as a process, a comparator.

Nothing here imports `replicator` or `embedded_broker`: both are met over TCP, files and signals only.
"""
