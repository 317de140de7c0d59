"""Makes the start of a run quick, which collects thousands of tests. A pytest plugin, loaded by `conftest.py`.

In a new clone every module must be compiled, and pytest compiles tests in its own way. All workers of pytest-xdist
import the same modules in the same order, so each would compile all of them; here each compiles its share first.
What another one hasn't finished in time is compiled once more, when it is imported.

Of the objects that collecting makes nearly all stay until the end. The garbage collector would look through them
again and again, which takes a fourth of the time in a new clone.
"""

from __future__ import annotations

import compileall
import gc
import sys
from collections.abc import Generator, Iterable
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

from tests.running.tiers import ROOT

IMPORTED = ("replicator", "embedded_broker", "kafka_records", "cli", "benchmarks", "integration_tests/harness")
"""What tests import, besides what stands beside them."""


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without the garbage collector, which later doesn't look at what there is by then."""
    gc.disable()
    try:
        compile_share(session.config)
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def compile_share(config: pytest.Config) -> None:
    """Compile what falls to this worker, if there are others and the run is of whole directories."""
    worker: dict[str, object] = getattr(config, "workerinput", {})
    places = [Path(config.invocation_params.dir, name) for name in config.args]
    if not worker or sys.dont_write_bytecode or not all(place.is_dir() for place in places):
        return
    number, of = int(str(worker["workerid"]).removeprefix("gw")), int(str(worker["workercount"]))
    compile_all(share(sorted({*files(places), *files(ROOT / name for name in IMPORTED)}), number, of), config)


def files(places: Iterable[Path]) -> Iterable[Path]:
    """List Python's files below these directories."""
    return (path for place in places for path in place.rglob("*.py"))


def share(paths: list[Path], number: int, of: int) -> list[Path]:
    """Choose the paths of one worker: none of them falls to another one, too."""
    return paths[number % of :: of]


def compile_all(paths: Iterable[Path], config: pytest.Config) -> None:
    """Compile as the import will look for it. A file with an error is left to whoever imports it."""
    for path in paths:
        if path.name.startswith("test_") or path.name == "conftest.py":
            _compile_test(path, config)
        else:
            compileall.compile_file(path, quiet=2)


def _compile_test(path: Path, config: pytest.Config) -> None:
    compiled = rewrite.get_cache_dir(path) / (path.stem + rewrite.PYC_TAIL)
    state = config.stash.get(rewrite.assertstate_key, None)
    if state is None or compiled.exists() or not rewrite.try_makedirs(compiled.parent):
        return
    try:
        source_hash, code = rewrite._rewrite_test(path, config)
    except SyntaxError:
        return  # told by the import
    rewrite._write_pyc(state, code, source_hash, compiled)
