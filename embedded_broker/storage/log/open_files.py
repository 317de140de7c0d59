"""How many files logs may hold open. `RealFileSystem` counts them; `DiskSpace` says which writes may use the reserve.

Segments stay open, connections are files, too, and the system refuses the next one, whoever needs it: so logs stop
before that, and what the broker needs for itself (markers, fsyncs, checkpoints) still finds some.
"""

from __future__ import annotations

import contextlib
import errno
import resource
from collections.abc import Iterator

RESERVE = 64
"""For the broker's own logs, and for files that are open for a moment: there are few threads that write any."""
OUT_OF_FILES_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE})
SOFT_LIMIT = 65_536


def raise_limit() -> None:
    """Let this process open as many files as it may, up to SOFT_LIMIT. For processes that are a broker."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = SOFT_LIMIT if hard == resource.RLIM_INFINITY else min(hard, SOFT_LIMIT)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # what there is must do
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def for_logs() -> int:
    """Return half of the files that this process may open, but for the reserve; the other half is for connections."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    half = (SOFT_LIMIT if soft == resource.RLIM_INFINITY else soft) // 2
    return max(half - RESERVE, half // 2)


def is_out_of_files(error: OSError) -> bool:
    """Return whether an error says that no more files can be opened, and nothing else is wrong."""
    return error.errno in OUT_OF_FILES_ERRNOS


class OpenFiles:
    """Counts open files."""

    def __init__(self, files_max: int) -> None:
        """`files_max`: of all but the broker's own."""
        self._files_max = files_max
        self._for_itself = 0
        self.count = 0

    def take(self) -> None:
        """Count a file before it is opened. Raises OSError (EMFILE)."""
        if self.count >= self._files_max and not self._for_itself:
            raise OSError(errno.EMFILE, f"logs hold {self.count} open files, and may hold {self._files_max}")
        self.count += 1

    def give_back(self) -> None:
        """Count it no more, after it is closed, or could not be opened."""
        self.count -= 1

    @contextlib.contextmanager
    def for_itself(self) -> Iterator[None]:
        """Open files in the block that the broker can't be without: there is a reserve for them."""
        self._for_itself += 1
        try:
            yield
        finally:
            self._for_itself -= 1
