"""Makes what the quick tests of image and chart want and can't make in seconds.

Run as `python -m integration_tests.harness.prepare`: the image's base and its packages, by Docker and debootstrap, and
helm, by Go. What can't be made here is said, and why: their tests are skipped then. A mirror of packages that doesn't
answer is no reason to run no test.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from integration_tests.harness import image
from integration_tests.kubernetes import tools


def _image() -> None:
    with tempfile.TemporaryDirectory() as name:
        image.built(Path(name))


def main() -> None:
    """Make one after the other."""
    made: tuple[tuple[str, Callable[[], None]], ...] = (("the image", _image), ("helm", tools.build_helm))
    for what, make in made:
        try:
            make()
        except (pytest.skip.Exception, AssertionError, subprocess.TimeoutExpired) as reason:
            print(f"{what} is not made: {reason}", file=sys.stderr)


if __name__ == "__main__":
    main()
