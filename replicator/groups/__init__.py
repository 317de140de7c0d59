"""Consumer groups at the target: which of their offsets are this flow's, and what may be written. Pure.

Sources: KIP-545 for what MirrorMaker 2 does; KIP-211 for how offsets expire; KIP-320 for leader epochs of committed
offsets.
"""
