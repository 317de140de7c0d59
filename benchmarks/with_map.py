"""`eos-replicate run`, with the same imports as `without_map`, beside which it is measured."""

from __future__ import annotations

from cli.main import entry
from replicator.flow import offsets_topic, setup

__all__ = ["entry", "offsets_topic", "setup"]

if __name__ == "__main__":
    entry()
