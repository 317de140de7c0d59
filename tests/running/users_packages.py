"""The environment of programs that tests start many times: the packages that a user has, without one of the tests' own.

kio imports hypothesis where it is installed, to tell it of its types. That is a third of the processor time that a
worker or a broker needs to start, and no user pays it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ABSENT = "hypothesis"


@cache
def _directory() -> Path:
    made = Path(tempfile.mkdtemp(prefix="eos-test-packages-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    (made / f"{ABSENT}.py").write_text(f'raise ModuleNotFoundError("as for a user", name="{ABSENT}")\n')
    return made


def users_packages(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment, or else this process's, in which `import hypothesis` fails as it does for a user."""
    base = dict(os.environ if environment is None else environment)
    before = [base["PYTHONPATH"]] if base.get("PYTHONPATH") else []
    return {**base, "PYTHONPATH": os.pathsep.join([str(_directory()), *before])}
