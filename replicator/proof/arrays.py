"""What numpy's arrays hold where many records are compared at a time. Used by all that compares so."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

OffsetArray = NDArray[np.int64]
"""Offsets or places, or times in ms."""
WordArray = NDArray[np.uint64]
"""Digests, or sums of them."""
