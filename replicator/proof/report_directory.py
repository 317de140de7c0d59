"""A report's directory on this machine: all of it is there, or nothing. For `local_report` and `spark.reconcile`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from replicator.model.errors import ConfigError


def check_unused(directory: Path) -> None:
    """Raise ConfigError when `directory` exists, which is never overwritten, or can't be made.

    Commands ask this before they compare or repair anything: that may take hours, and would have no report.
    """
    _make_part(directory).rmdir()


def _make_part(directory: Path) -> Path:
    """Make a directory beside `directory`, with a name that nothing else has. Raises as `check_unused`."""
    if directory.exists() or directory.is_symlink():
        raise ConfigError(f"{directory} exists already; give a directory that does not")
    if not directory.absolute().parent.is_dir():
        raise ConfigError(f"{directory.absolute().parent} is not a directory")
    target = directory.absolute()
    try:
        return Path(tempfile.mkdtemp(prefix=f".{target.name}.part-", dir=target.parent))
    except OSError as error:
        raise ConfigError(f"{directory} can't be made: {error.strerror}") from error


@contextmanager
def complete(directory: Path) -> Iterator[Path]:
    """Make a directory to write into, which becomes `directory` when the block ends well, and vanishes when it
    doesn't.
    """
    part = _make_part(directory)
    try:
        yield part
        part.chmod(0o755)
        part.rename(directory.absolute())
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
