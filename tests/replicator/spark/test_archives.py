"""Archives are read again in a Python worker when they have changed, and only then."""

from __future__ import annotations

import ast
import importlib
import sys
import zipfile
import zipimport
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from replicator.spark import archives

TASKS = 6
THROUGH = {"mapInArrow": "archives.of_task(", "applyInArrow": "archives.of_group("}


def reads_of_all() -> int:
    """How many directories of archives Python reads when it is to forget what it knows of them."""
    return len(_read())


def reads_of(archive: Path) -> int:
    """How many of them are of this one. Others in this process may be gone, and are tried each time."""
    return _read().count(str(archive))


def _read() -> list[str]:
    read: list[str] = []
    reading = zipimport._read_directory  # type: ignore[attr-defined]

    def counted(archive: str) -> object:
        read.append(archive)
        return reading(archive)

    zipimport._read_directory = counted  # type: ignore[attr-defined]
    try:
        importlib.invalidate_caches()
    finally:
        zipimport._read_directory = reading  # type: ignore[attr-defined]
    return read


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive with `packed_first`, from which this process has imported that."""
    monkeypatch.setattr(zipimport.zipimporter, "invalidate_caches", zipimport.zipimporter.invalidate_caches)
    return imported_from(tmp_path / "packed.zip", "packed_first", monkeypatch)


def imported_from(archive: Path, module: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The archive, made with this module, which this process has imported."""
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(f"{module}.py", "")
    monkeypatch.syspath_prepend(str(archive))
    importlib.import_module(module)
    return archive


def test_an_archive_is_read_again_when_it_has_changed(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As those of a Spark session that has ended.
    imported_from(archive.with_name("gone.zip"), "packed_and_gone", monkeypatch).unlink()
    assert reads_of(archive) > 0
    archives.read_when_changed()
    assert reads_of(archive) == 0
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("packed_second.py", "")
    assert reads_of(archive) > 0
    importlib.import_module("packed_second")
    assert reads_of(archive) == 0


@pytest.mark.usefixtures("archive")
def test_one_that_is_gone_is_no_error_and_is_read_when_it_is_there_again(archive: Path) -> None:
    archives.read_when_changed()
    away = archive.rename(archive.with_suffix(".away"))
    reads_of_all()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("packed_third")
    with zipfile.ZipFile(away, "a") as file:
        file.writestr("packed_third.py", "")
    away.rename(archive)
    importlib.invalidate_caches()
    importlib.import_module("packed_third")


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="it reads when it imports")
def test_a_read_that_failed_is_tried_again(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the process may open no more files: else the worker would import nothing more from the archive."""

    def fail(path: str) -> object:
        raise zipimport.ZipImportError("too many open files", path=path)

    archives.read_when_changed()
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("packed_fourth.py", "")
    with monkeypatch.context() as patch:
        patch.setattr(zipimport, "_read_directory", fail)
        importlib.invalidate_caches()
    importlib.invalidate_caches()
    importlib.import_module("packed_fourth")


def _reads(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import zipimport

    assert any(isinstance(it, zipimport.zipimporter) for it in sys.path_importer_cache.values()), "it imports from some"
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"reads": [reads_of_all()]})


def test_no_task_of_spark_reads_them_again(spark: SparkSession) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call] # workers lack it
    rows = spark.range(0, TASKS, 1, TASKS).mapInArrow(archives.of_task(_reads), "reads long").collect()
    assert [row.reads for row in rows] == [0] * TASKS


def test_all_that_runs_on_batches_and_groups_is_passed_through() -> None:
    calls = [
        node
        for path in sorted(Path(archives.__file__).parent.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in THROUGH
    ]
    assert len(calls) > 8
    for call in calls:
        assert isinstance(call.func, ast.Attribute)
        assert ast.unparse(call.args[0]).startswith(THROUGH[call.func.attr]), ast.unparse(call)
