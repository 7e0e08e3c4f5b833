"""The suites. Each is a module with `run(bench: Bench) -> None`; `SUITES` says what there is, in the order of a run."""

SUITES = {
    "produce": "message sizes, partitions, acks and codecs, as fast as librdkafka goes",
    "fetch": "all of a topic, from the disk and from the page cache",
    "latency": "from a message's due time to its consumer, at fixed rates",
    "requests": "one small record a request, on 1 to 512 connections",
    "startup": "from an empty data folder to the first ack",
    "recovery": "a restart with data, after a clean stop and after kill -9",
    "memory": "of all nodes, at rest and under load",
    "growth": "many partitions, many connections, a large log",
    "mesh": "calls between nodes, beside a bare QUIC stream",
    "wal": "the log, beside plain file calls",
    "traces": "recording, storing and finding spans",
    "tracing": "a cluster with every request traced, beside one without",
    "spark": "scans of the log, beside Parquet",
}
