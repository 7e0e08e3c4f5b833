"""What `produce` makes of what a person hands to it."""

from datetime import UTC, datetime

import pandas as pd
import pytest

from rafka_lab.errors import LabError
from rafka_lab.rows import NewRow, rows_of


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("text", [NewRow(None, b"text", [])]),
        (b"\xff", [NewRow(None, b"\xff", [])]),
        (["a", None, b"b"], [NewRow(None, b"a", []), NewRow(None, None, []), NewRow(None, b"b", [])]),
        ([("k", "v"), (None, {"n": 1})], [NewRow(b"k", b"v", []), NewRow(None, b'{"n":1}', [])]),
        ([{"name": "x", "n": 1}], [NewRow(None, b'{"name":"x","n":1}', [])]),
        ({"value": "v", "partition": 3}, [NewRow(None, b"v", [], 3)]),
        ([{"key": "k", "headers": {"h": "1"}}], [NewRow(b"k", None, [("h", b"1")])]),
        ([{"value": 1, "headers": [("h", None), ("h", "2")]}], [NewRow(None, b"1", [("h", None), ("h", b"2")])]),
        ([{"value": "v", "timestamp": datetime(2026, 1, 1, tzinfo=UTC)}], [NewRow(None, b"v", [], -1, 1767225600000)]),
        ([42, 1.5, True], [NewRow(None, b"42", []), NewRow(None, b"1.5", []), NewRow(None, b"true", [])]),
        ([], []),
    ],
)
def test_rows_become_records(given: object, expected: list[NewRow]) -> None:
    assert list(rows_of(given)) == expected  # type: ignore[arg-type]


def test_a_data_frame_with_a_value_column_is_a_record_a_row() -> None:
    frame = pd.DataFrame({"key": ["a", None], "value": ["1", "2"], "offset": [5, 6], "trace_id": [None, None]})
    assert list(rows_of(frame)) == [NewRow(b"a", b"1", []), NewRow(None, b"2", [])]


def test_any_other_data_frame_is_json_a_row() -> None:
    assert list(rows_of(pd.DataFrame({"x": [1], "y": ["a"]}))) == [NewRow(None, b'{"x":1,"y":"a"}', [])]


def test_a_column_that_is_no_part_of_a_record_is_refused_and_named() -> None:
    with pytest.raises(LabError, match="price"):
        list(rows_of(pd.DataFrame({"value": ["1"], "price": [2]})))


@pytest.mark.parametrize("row", [("a", "b", "c"), object(), {"value": "v", "partition": "many"}])
def test_what_cannot_be_a_record_is_refused_with_its_number(row: object) -> None:
    with pytest.raises(LabError, match="row 1 cannot be a record"):
        list(rows_of(["fine", row]))
