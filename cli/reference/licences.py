"""docs/reference/licences.md: the licence of each package that is installed with this one, as its metadata says it."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

from cli.reference.markdown import table

LISTS = Path(__file__).parents[2]
LICENCE = "License :: "
SHORT_CHARACTERS_MAX = 60
INTRODUCTION = """\
# Licences

Generated from the metadata of the pinned packages by `python -m cli.reference`; a test checks that it is up to date.

eos-replicate itself is under the Apache License 2.0. All of these packages are installed beside it, unchanged, by pip:
nothing of them is copied into it or linked statically. The image contains those of the first list.
"""


def page() -> str:
    """Return the whole page."""
    run, spark = (_pinned(f"constraints-{name}.txt") for name in ("run", "spark"))
    more = [name for name in spark if name not in run]
    return f"{INTRODUCTION}\n{_table(run)}\nWith `eos-replicate[spark]` also:\n\n{_table(more)}"


def licence(said: metadata.PackageMetadata) -> str:
    """Return the licence: as SPDX expression, as a word, or by the classifiers. Raises ValueError without any."""
    (expression, *_), (word, *_) = (said.get_all(key) or [""] for key in ("License-Expression", "License"))
    if expression:
        return str(expression)
    word = str(word).strip()
    if word and "\n" not in word and len(word) <= SHORT_CHARACTERS_MAX and "://" not in word:
        return word
    found = [it.rpartition(" :: ")[2] for it in said.get_all("Classifier") or () if it.startswith(LICENCE)]
    if not found:
        raise ValueError(f"{said['Name']} doesn't say under which licence it is")
    return ", ".join(found)


def _pinned(name: str) -> list[str]:
    return re.findall(r"^([a-z0-9-]+)==", (LISTS / name).read_text(), re.MULTILINE)


def _table(names: list[str]) -> str:
    return table(("package", "licence"), [(f"`{name}`", licence(metadata.metadata(name))) for name in names])
