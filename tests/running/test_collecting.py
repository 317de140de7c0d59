"""How a run starts: each worker compiles its share, and the garbage collector leaves alone what was collected."""

from __future__ import annotations

import gc
import importlib.util
import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

from tests.running.collecting import compile_all, share


def test_the_collector_is_at_work_and_passes_over_what_was_collected() -> None:
    assert gc.isenabled()
    assert gc.get_freeze_count() > 10_000


@pytest.mark.parametrize("of", [1, 2, 3, 6])
def test_each_file_is_in_one_share(of: int) -> None:
    paths = [Path(f"test_{number}.py") for number in range(20)]
    assert sorted(path for number in range(of) for path in share(paths, number, of)) == sorted(paths)


def test_what_is_compiled_is_what_an_import_looks_for(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    test, module, broken = (tmp_path / name for name in ("test_it.py", "it.py", "test_broken.py"))
    test.write_text("def test_it():\n    assert 1 == 1\n")
    module.write_text("IT = 1\n")
    broken.write_text("def test_it(:\n")
    compile_all([test, module, broken], pytestconfig)
    assert rewrite._read_pyc(test, rewrite.get_cache_dir(test) / f"test_it{rewrite.PYC_TAIL}") is not None
    assert Path(importlib.util.cache_from_source(str(module))).exists()
    assert not (rewrite.get_cache_dir(broken) / f"test_broken{rewrite.PYC_TAIL}").exists()
