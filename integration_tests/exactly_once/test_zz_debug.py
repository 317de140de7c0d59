import pytest
from integration_tests.exactly_once.conftest import MakeCopying
from integration_tests.harness.proxy import Action, Proxy, Side
from integration_tests.harness import compare as cmp
import asyncio
LIMITS = {"request_timeout_ms": 2_000, "transaction_timeout_ms": 6_000}
@pytest.mark.parametrize("n", range(24))
def test_dbg(make_copying: MakeCopying, proxy: Proxy, n) -> None:
    copying = make_copying(via=proxy.bootstrap, limits=LIMITS)
    worker = copying.running()
    with copying.writing():
        worker.wait_event("committed")
        mark = worker.mark()
        lost = proxy.rule("EndTxn", Side.REQUEST, Action.CUT, client=".lane")
        lost.wait_hit()
        worker.wait_event("restarted", after=mark)
        worker.wait_event("committed", after=mark)
    copying.wait_copied(); worker.stop()
    here, there = asyncio.run(cmp._both(copying.source, copying.topic, copying.target, copying.copy, copying.partitions, ()))
    bad=False
    for p in range(copying.partitions):
        names={r.name for r in there[p]}
        for i,r in enumerate(here[p]):
            if r.name not in names: bad=True; print("LOST",p,i,r)
    if bad:
        print(worker.tail(200))
        from confluent_kafka import Consumer, TopicPartition
        for iso in ("read_committed","read_uncommitted"):
            c=Consumer({"bootstrap.servers":copying.target if isinstance(copying.target,str) else copying.target.bootstrap,"group.id":"dbg","isolation.level":iso,"enable.partition.eof":True,"auto.offset.reset":"error"})
            for p in range(copying.partitions):
                print("WM",iso,p,c.get_watermark_offsets(TopicPartition(copying.copy,p),timeout=5))
                c.assign([TopicPartition(copying.copy,p,0)])
                got=[]
                while True:
                    m=c.poll(5)
                    if m is None or m.error(): print("END",m and m.error(), m and m.offset()); break
                    got.append((m.offset(),(m.key() or m.value() or b"")[:15]))
                print("GOT",iso,p,len(got),got[:8])
        assert 0
