"""Partitions of a flow with their offset map, made by hand on real brokers: what a lane would have written, and what
was done to the logs and to the map besides. Everything is drawn by seed; each record's truth is kept."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import TopicPartition

from integration_tests.harness import clients
from integration_tests.harness.replicator import FlowFile
from integration_tests.proof.mapped_lane import CopyPlan, MappedLane, Writers
from integration_tests.proof.truth import Truth, content
from integration_tests.spark.planted import Addressed, open_flow
from replicator import config
from replicator.config import Flow
from replicator.flow.topics import ControlPlane
from replicator.model import checkpoint, names
from replicator.model.checkpoint import NOBODY, Evidence
from replicator.offset_map.section import topic_id_bytes
from replicator.offset_map.topic import CONFIGS, MAP_PARTITIONS


class MappedFlow:
    """A flow with one topic; its partitions are drawn by `seeds`, and hold what `acts` says may happen."""

    def __init__(
        self,
        source: Addressed,
        target: Addressed,
        directory: Path,
        name: str,
        seeds: Sequence[int],
        acts: Sequence[str],
        *,
        configs: dict[str, str] | None = None,
        source_configs: dict[str, str] | None = None,
        transactions: int = 8,
    ) -> None:
        self.source, self.target, self.seeds, self.acts = source.bootstrap, target.bootstrap, seeds, acts
        self.topic, self.copy, self.blocks_topic = f"{name}.in", f"{name}.in.copy", names.offsets_topic(name)
        clients.create_topic(self.source, self.topic, len(seeds), source_configs)
        clients.create_topic(self.target, self.copy, len(seeds), configs)
        clients.create_topic(self.target, self.blocks_topic, MAP_PARTITIONS, dict(CONFIGS))
        self.file = FlowFile(directory, name, self.source, self.target, topics=[self.topic])
        open_flow(self.flow, self.target, {self.topic: len(seeds)})
        self._here, self._there = Writers(self.source, name), Writers(self.target, name)
        self.topic_id = topic_id_bytes(self._ids()[0])
        self._transactions = transactions
        self.truths = self._copy_all()
        self.commit()

    @property
    def flow(self) -> Flow:
        """The flow as its file says."""
        return config.load(self.file.path).flows[self.file.flow]

    def _ids(self) -> tuple[str, str, str, str]:
        """Ids of source topic, target topic, map topic; of the source cluster."""
        with ControlPlane(self.flow) as clusters:
            here, _ = clusters.connect()
            info = clusters.offsets_topic()
            assert info is not None
            source, target = clusters.list_source()[self.topic], clusters.list_target([self.topic])[self.copy]
            return source.topic_id, target.topic_id, info.topic_id, here.cluster_id

    def _copy_all(self) -> list[Truth]:
        """All partitions beside one another: a generation is that of all lanes."""
        truths = [Truth() for _ in self.seeds]
        draws = [random.Random(seed) for seed in self.seeds]
        for number, truth in enumerate(truths):
            self._write_source(number, draws[number], truth)
        plan = CopyPlan(self.topic_id, self.copy, self.blocks_topic, self.acts)
        lanes = [MappedLane(plan, number, draws[number], truth, self._there) for number, truth in enumerate(truths)]
        for lane in lanes:
            lane.step(0.2)
        while any(lane.left for lane in lanes):
            for lane in lanes:
                lane.copy()
            if draws[0].random() < 0.3:
                for lane in lanes:
                    lane.change()
        for lane, truth in zip(lanes, truths, strict=True):
            if "repaired" in self.acts:
                lane.repair()
            truth.position, truth.next_target = lane.position, lane.next_target
        return truths

    def _write_source(self, number: int, draw: random.Random, truth: Truth) -> None:
        kind = "keyed" if "keyed" in self.acts else draw.choice(("unique", "unique", "keyed", "repeated", "nulls"))
        made = 0
        for _ in range(self._transactions):
            contents = [content(draw, kind, made + index) for index in range(draw.choice((1, 3, 10, 40)))]
            made += len(contents)
            how = draw.choice(("plain", "commit", "abort"))
            if how == "plain":
                offsets = self._here.write("plain", self.topic, number, contents)
            else:
                writer = self._here.of(how)
                writer.begin_transaction()
                offsets = self._here.write(how, self.topic, number, contents)
                (writer.commit_transaction if how == "commit" else writer.abort_transaction)(clients.TIMEOUT_S)
            if how != "abort":
                truth.source |= dict(zip(offsets, contents, strict=True))

    def commit(self) -> None:
        """Commit positions that cover all that was copied."""
        source_id, target_id, map_id, cluster = self._ids()
        offsets = []
        for number, truth in enumerate(self.truths):
            evidence = Evidence(
                generation=1,
                owner=NOBODY,
                source_topic=self.topic,
                source_cluster=cluster,
                source_topic_id=source_id,
                target_topic_id=target_id,
                log_start=0,
                next_target_offset=truth.next_target,
                count=truth.count,
                map_topic_id=map_id,
                map_partition=0,
                map_offset=0,
            )
            offsets.append(TopicPartition(self.copy, number, truth.position, metadata=checkpoint.encode(evidence)))
        client = clients.consumer(self.target, group_id=names.position_group(self.flow.name))
        client.commit(offsets=offsets, asynchronous=False)
        client.close()

    def cut(self, number: int, *, source: int = 0, target: int = 0) -> None:
        """Delete what stands below these offsets."""
        truth = self.truths[number]
        if source:
            clients.delete_records(self.source, self.topic, number, source)
            truth.source_start = source
        if target:
            clients.delete_records(self.target, self.copy, number, target)
            truth.target_start = target
