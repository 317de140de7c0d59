"""Commands of advice, typed as they are printed: to people there is nothing else to go by."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

WHY = "as the advice says"


def advised(advice: str, begin: str, **given: str) -> Sequence[str]:
    """The words of the command in `advice` that begins with `begin`, without `eos-replicate` and `-c FILE`.

    `given`: what stands there in capitals, such as ID; TEXT is some reason.
    """
    found = re.search(rf"eos-replicate ({re.escape(begin)}.*?) -c FILE", advice)
    assert found is not None, f"no command {begin} in {advice!r}"
    meant = {"TEXT": WHY, **given}
    words = [meant.get(word, word) for word in shlex.split(found[1])]
    assert not [word for word in words if word.isupper() and word not in meant.values()], words
    return words
