"""`eos-replicate run` without the offset map: `python -m benchmarks.without_map run ...`. Used by `map_cost`."""

from __future__ import annotations

from benchmarks.with_map import entry, setup


def without(*_: object) -> bool:
    """In the place of `prepare_map`: no lane writes a map."""
    return False


if __name__ == "__main__":
    setattr(setup, "prepare_map", without)  # noqa: B010 - it is imported there, not defined
    entry()
