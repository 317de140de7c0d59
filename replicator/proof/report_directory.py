"""A report's directory on this machine: all of it is there, or nothing. For `local_report` and `spark.reconcile`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from replicator.model.errors import ConfigError


def check_unused(directory: Path) -> None:
    """Raise ConfigError when `directory` exists, or its parent does not: nothing is ever overwritten."""
    if directory.exists() or directory.is_symlink():
        raise ConfigError(f"{directory} exists already; give a directory that does not")
    if not directory.absolute().parent.is_dir():
        raise ConfigError(f"{directory.absolute().parent} is not a directory")


@contextmanager
def complete(directory: Path) -> Iterator[Path]:
    """Make a directory to write into, which becomes `directory` when the block ends well, and vanishes when it
    doesn't.
    """
    check_unused(directory)
    target = directory.absolute()
    try:
        part = Path(tempfile.mkdtemp(prefix=f".{target.name}.part-", dir=target.parent))
    except OSError as error:
        raise ConfigError(f"cannot write beside {directory}: {error.strerror}") from error
    try:
        yield part
        part.chmod(0o755)
        part.rename(target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
