"""Runs a kcat command against a cluster; what it gives back is a DataFrame that shows itself as kcat prints it."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pandas as pd  # type: ignore[import-untyped]

from lab.errors import KcatError
from lab.kcat_consume import consume
from lab.kcat_flags import HELP, Invocation
from lab.kcat_format import Printed, text_of
from lab.kcat_input import rows_of_input
from rafka_lab.client import Kafka
from rafka_lab.errors import LabError
from rafka_lab.records import texts

if TYPE_CHECKING:
    from rafka_lab.tools import LabTools

_QUERY_PARTS = 3
_COLUMNS = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]


class KcatFrame(pd.DataFrame):  # type: ignore[misc]
    """A DataFrame whose display is kcat's own text where the flags ask for that (-f, -J, -K, -D)."""

    _metadata = ["kcat_text"]  # noqa: RUF012 - pandas wants a plain list
    kcat_text: str | None = None

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame  # a part of it is a table like any other

    def __repr__(self) -> str:
        return super().__repr__() if self.kcat_text is None else self.kcat_text

    def _repr_html_(self) -> Any:
        return super()._repr_html_() if self.kcat_text is None else None


def run(asked: Invocation, kafka: Kafka, text: str | None = None, lab: "LabTools | None" = None) -> pd.DataFrame | str:
    """The command's result; `lab` adds trace ids. An endless consumption is not for here: `is_endless` tells."""
    match asked.mode:
        case "h":
            return HELP
        case "V":
            return version()
        case "P":
            return _produce(asked, kafka, text)
        case "L":
            return _list(asked, kafka)
        case "Q":
            return _query(asked, kafka)
    records: list[Printed] = []
    try:
        for some in consume(kafka, asked):
            records += some
    except KeyboardInterrupt:
        pass  # what came so far is what was asked for
    return consumed_frame(records, asked, lab)


def is_endless(asked: Invocation) -> bool:
    """Whether it consumes until somebody stops it."""
    return asked.mode in ("C", "G") and not asked.exit_at_end and asked.count is None and asked.until_ms is None


def version() -> str:
    from confluent_kafka import libversion, version

    return f"%kcat of rafka-lab, confluent-kafka {version()}, librdkafka {libversion()[0]}"


def consumed_frame(records: list[Printed], asked: Invocation, lab: "LabTools | None" = None) -> pd.DataFrame:
    """The records as a table, with their trace ids where the lab's own log knows them."""
    frame = KcatFrame(
        {
            "topic": [record.topic for record in records],
            "partition": pd.array([record.partition for record in records], dtype="int32"),
            "offset": pd.array([record.offset for record in records], dtype="int64"),
            "timestamp": pd.to_datetime([record.timestamp for record in records], unit="ms", utc=True),
            "key": pd.Series(texts([record.key for record in records]), dtype=object),
            "value": pd.Series(texts([record.value for record in records]), dtype=object),
            "headers": pd.Series([list(record.headers) for record in records], dtype=object),
        },
        columns=_COLUMNS,
    )
    if lab is not None:
        frame["trace_id"] = None
        for topic in frame["topic"].unique():
            at = frame["topic"] == topic
            frame.loc[at, "trace_id"] = lab.wal.trace_ids(topic, frame[at])
    if asked.as_text:
        frame.kcat_text = text_of(records, asked)
    return frame


def _produce(asked: Invocation, kafka: Kafka, text: str | None) -> pd.DataFrame:
    settings = {"compression.type": asked.codec} | asked.settings
    rows = ({name: value for name, value in row._asdict().items() if value is not None}
            for row in rows_of_input(asked, text))  # fmt: skip
    try:
        return kafka.produce(asked.topics[0], rows, config=settings)
    except KcatError:
        raise
    except LabError as error:
        raise KcatError(str(error)) from None


def _list(asked: Invocation, kafka: Kafka) -> pd.DataFrame:
    topic = asked.topics[0] if asked.topics else None
    found = _metadata(asked, kafka, topic)
    rows = []
    for name, known in sorted(found.topics.items()):
        if topic is not None and known.error is not None:
            raise KcatError(f"Topic {name} error: {known.error.str()}; %kcat -L lists the topics")
        rows += [
            {"topic": name, "partition": part.id, "leader": part.leader, "replicas": part.replicas, "isrs": part.isrs}
            for _, part in sorted(known.partitions.items())
        ]
    frame = KcatFrame(rows, columns=["topic", "partition", "leader", "replicas", "isrs"])
    if asked.json:
        frame.kcat_text = json.dumps(_metadata_document(found, topic), separators=(",", ":"))
    return frame


def _metadata(asked: Invocation, kafka: Kafka, topic: str | None) -> Any:
    from confluent_kafka import KafkaException

    try:
        named = {} if topic is None else {"topic": topic}
        return kafka.admin.list_topics(timeout=asked.metadata_seconds, **named)
    except KafkaException as error:
        raise KcatError(f"Failed to acquire metadata from {kafka.bootstrap}: {error.args[0].str()}") from None


def _metadata_document(found: Any, topic: str | None) -> dict[str, Any]:
    return {
        "originating_broker": {"id": found.orig_broker_id, "name": found.orig_broker_name},
        "query": {"topic": topic or "*"},
        "controllerid": found.controller_id,
        "brokers": [{"id": known.id, "name": f"{known.host}:{known.port}"} for known in found.brokers.values()],
        "topics": [
            {
                "topic": name,
                "partitions": [
                    {
                        "partition": part.id,
                        "leader": part.leader,
                        "replicas": [{"id": number} for number in part.replicas],
                        "isrs": [{"id": number} for number in part.isrs],
                    }
                    for _, part in sorted(known.partitions.items())
                ],
            }
            for name, known in sorted(found.topics.items())
        ],
    }


def _query(asked: Invocation, kafka: Kafka) -> pd.DataFrame:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    places = [TopicPartition(*_place(text)) for text in asked.topics]
    consumer = Consumer(kafka.config({"group.id": "rafka-lab-kcat"} | asked.settings))
    try:
        answers = consumer.offsets_for_times(places, timeout=asked.metadata_seconds)
    except KafkaException as error:
        raise KcatError(error.args[0].str()) from None
    finally:
        consumer.close()
    for answer in answers:
        if answer.error is not None:
            raise KcatError(f"{answer.topic} [{answer.partition}]: {answer.error.str()}")
    return KcatFrame(_query_rows(places, answers))


def _query_rows(places: Iterable[Any], answers: Iterable[Any]) -> list[dict[str, Any]]:
    asked = {(place.topic, place.partition): place.offset for place in places}
    return [
        {
            "topic": answer.topic,
            "partition": answer.partition,
            "timestamp": asked[answer.topic, answer.partition],
            "offset": answer.offset,  # -1, kcat's too: no record is that late
        }
        for answer in sorted(answers, key=lambda answer: (answer.topic, answer.partition))
    ]


def _place(text: str) -> tuple[str, int, int]:
    parts = text.rsplit(":", _QUERY_PARTS - 1)
    try:
        topic, partition, moment = parts
        return topic, int(partition), int(moment)
    except ValueError:
        raise KcatError(f"-Q -t {text}: expected topic:partition:milliseconds") from None
