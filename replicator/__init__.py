"""eos-replicate: copies Kafka topics between clusters, exactly once. For programs there is `translate`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replicator.translation.answers import OffsetAnswer


def translate(
    config_file: str | Path, flow: str, offsets: Iterable[tuple[str, int, int]], *, reverse: bool = False
) -> list[OffsetAnswer]:
    """Translate offsets between the sides of a flow, as `eos-replicate translate` does. Nothing is changed.

    Args:
        config_file: the flow file.
        flow: the flow's name.
        offsets: topic, partition, and the next offset to be consumed there, of the source; with `reverse` of the
            target.

    Returns:
        An answer for each, in their order: `offset` is where a consumer goes on, None where nothing says it;
        `translated.again` how many records it reads again; `exact` whether each is read once.

    Raises:
        replicator.model.errors.ReplicatorError: ConfigError for a wrong file, flow or partition; Incident where the map
            is gone; Unreachable, NotAllowed, Retriable as for the clusters.
    """
    from replicator import config
    from replicator.model.errors import ConfigError
    from replicator.model.partition import Partition
    from replicator.translation.answers import OffsetToTranslate
    from replicator.translation.translate import translate as of_flow

    flows = config.load(Path(config_file)).flows
    if flow not in flows:
        raise ConfigError(f"{config_file}: no flow {flow}")
    asked = [OffsetToTranslate(Partition(topic, number), offset) for topic, number, offset in offsets]
    return of_flow(flows[flow], asked, reverse=reverse)
