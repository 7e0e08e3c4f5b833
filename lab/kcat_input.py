"""What `%%kcat -P` is given, cut into records as kcat cuts its stdin. Talks to nobody."""

from collections.abc import Iterator

from lab.errors import KcatError
from lab.kcat_flags import Invocation
from rafka_lab.rows import NewRow


def rows_of_input(asked: Invocation, text: str | None) -> Iterator[NewRow]:
    """The records to send: from the cell's text, from a file cut by the delimiter, or each file as one record."""
    if asked.files:
        yield from _file_rows(asked)
    elif text is not None:
        yield from _limited(asked, _cut(asked, text.encode()))
    else:
        raise KcatError("-P has nothing to send: write %%kcat and the records below it, or name a file")


def _file_rows(asked: Invocation) -> Iterator[NewRow]:
    if asked.lines and len(asked.files) > 1:
        raise KcatError("-l takes one file")
    for path in asked.files:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise KcatError(f"{path}: {error.strerror}") from None
        if asked.lines:
            yield from _limited(asked, _cut(asked, data))
        else:
            yield _row(asked, _encoded(asked.key), data)


def _cut(asked: Invocation, data: bytes) -> Iterator[NewRow]:
    delimiter = (asked.delimiter or "\n").encode()
    between = asked.key_delimiter.encode() if asked.key_delimiter else None
    for part in data.split(delimiter):
        if not part:
            continue  # kcat sends no empty records
        key = _encoded(asked.key)
        if between and between in part:
            key, part = part.split(between, 1)
        yield _row(asked, key, part)


def _row(asked: Invocation, key: bytes | None, value: bytes) -> NewRow:
    if asked.null:
        key, sent = key or None, value or None
    else:
        sent = value
    return NewRow(key, sent, list(asked.headers), -1 if asked.partition is None else asked.partition)


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _limited(asked: Invocation, rows: Iterator[NewRow]) -> Iterator[NewRow]:
    for number, row in enumerate(rows):
        if asked.count is not None and number >= asked.count:
            return
        yield row
