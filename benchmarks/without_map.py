"""`eos-replicate run` without the offset map: `python -m benchmarks.without_map run ...`. Used by `map_cost`."""

from __future__ import annotations

from benchmarks.with_map import entry, offsets_topic, setup


def without(*_: object) -> None:
    """In the place of `map_topic_of`: the flow has no map."""


if __name__ == "__main__":
    for module in (setup, offsets_topic):
        setattr(module, "map_topic_of", without)  # noqa: B010 - it is imported there, too
    entry()
