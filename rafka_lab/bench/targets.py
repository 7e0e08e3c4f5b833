"""What we want to reach against Apache Kafka: ratios within one run, durability matched, tracing off."""

from collections.abc import Iterable
from dataclasses import dataclass

from rafka_lab.bench.results import Ratio, Verdict


@dataclass(frozen=True)
class Target:
    """A bound on the ratio of one metric of one workload. Higher is better unless it says `at_most`."""

    suite: str
    workload: str
    metric: str
    bound: float
    at_most: bool = False

    @property
    def name(self) -> str:
        return f"{self.suite}: {self.workload}, {self.metric}"

    def judge(self, ratio: Ratio) -> Verdict:
        met = ratio.spread.median <= self.bound if self.at_most else ratio.spread.median >= self.bound
        sign = "<=" if self.at_most else ">="
        return Verdict(name=self.name, target=f"{sign} {self.bound:g}", ratio=ratio.spread, peer=ratio.peer, met=met)


TARGETS = (
    Target("produce", "100 B, 1 partition, acks=all", "throughput", 1.0),
    Target("produce", "1 KB, 1 partition, acks=all", "throughput", 1.0),
    Target("produce", "1 KB, 12 partitions, acks=all, lz4", "throughput", 1.0),
    Target("fetch", "1 KB, 1 partition, cached", "throughput", 0.8),
    Target("fetch", "1 KB, 12 partitions, cached", "throughput", 0.8),
    Target("latency", "1,000 msg/s, acks=all", "p99", 1.0, at_most=True),
    Target("latency", "1,000 msg/s, acks=1", "p99", 1.0, at_most=True),
    Target("startup", "empty data folder", "to first ack", 0.3, at_most=True),
    Target("memory", "at rest", "PSS", 0.4, at_most=True),
    Target("requests", "64 connections, acks=1", "requests", 0.5),
    Target("requests", "64 connections, acks=all", "requests", 0.5),
)


def judge(ratios: Iterable[Ratio], peer: str) -> list[Verdict]:
    """The targets whose workloads were measured beside the peer."""
    found = {(ratio.suite, ratio.workload, ratio.metric): ratio for ratio in ratios if ratio.peer == peer}
    wanted = ((target, found.get((target.suite, target.workload, target.metric))) for target in TARGETS)
    return [target.judge(ratio) for target, ratio in wanted if ratio is not None]
