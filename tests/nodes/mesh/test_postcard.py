"""The codec against the Rust crate's bytes, against itself, and against nonsense."""

import contextlib
import enum
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodes.mesh.errors import PostcardError, UnencodableError
from nodes.mesh.messages import (
    Body,
    BodyAborted,
    BodyChunk,
    BodyCredit,
    Chunked,
    Control,
    HelloAnswer,
    Inline,
    KafkaOp,
    KafkaOpResponse,
    Pong,
)
from nodes.mesh.postcard import F32, I8, I16, I32, I64, U8, U16, U32, U64, Blob, codec

VECTORS = Path(__file__).parents[2] / "fixtures" / "postcard" / "vectors.txt"


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"
    BLUE = "blue"


class Ints(msgspec.Struct, frozen=True):
    a: U8
    b: U16
    c: U32
    d: U64
    e: I8
    f: I16
    g: I32
    h: I64


class Mixed(msgspec.Struct, frozen=True):
    flag: bool
    text: str
    data: bytes
    ratio: float
    small: F32
    there: U32 | None
    absent: U32 | None
    list: list[U16]
    pair: tuple[U8, str]
    map: dict[str, U32]
    color: Color


class View(msgspec.Struct, frozen=True):
    data: Blob


VALUES = {
    "ints_zero": Ints(0, 0, 0, 0, 0, 0, 0, 0),
    "ints_max": Ints(2**8 - 1, 2**16 - 1, 2**32 - 1, 2**64 - 1, 2**7 - 1, 2**15 - 1, 2**31 - 1, 2**63 - 1),
    "ints_min": Ints(1, 127, 128, 16384, -(2**7), -(2**15), -(2**31), -(2**63)),
    "mixed": Mixed(
        True,
        "grün",
        b"\x00\xff",
        -1.5,
        0.25,
        300,
        None,
        [1, 128, 65535],
        (7, "x"),
        {"a": 1, "b": 200},
        Color.BLUE,
    ),
    "kafka_op": KafkaOp(2, 70000, 7, 300, 30000, Inline(b"\x5a" * 200)),
    "response": KafkaOpResponse(1 << 40, 142, "not today", Chunked(1 << 20)),
    "hello_answer": Control(HelloAnswer(1, "broker", "0.1.0", 2**64 - 1, ["a", "b"], "")),
    "pong": Control(Pong(300)),
    "chunk": Body(BodyChunk(1 << 20, 65536, b"piece")),
    "aborted": Body(BodyAborted(5)),
    "credit": Body(BodyCredit(1 << 33)),
}


def rust_vectors() -> dict[str, bytes]:
    lines = VECTORS.read_text().splitlines()
    return {name: bytes.fromhex(digits) for name, digits in (line.split(" ") for line in lines)}


def test_every_vector_has_a_value() -> None:
    assert set(rust_vectors()) == set(VALUES)


@pytest.mark.parametrize("name", VALUES)
def test_bytes_are_those_of_the_rust_crate(name: str) -> None:
    value = VALUES[name]
    expected = rust_vectors()[name]
    assert codec(type(value)).encode(value) == expected
    assert codec(type(value)).decode(expected) == value


def ints(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


@given(
    st.builds(
        Ints,
        ints(0, 2**8 - 1), ints(0, 2**16 - 1), ints(0, 2**32 - 1), ints(0, 2**64 - 1),
        ints(-(2**7), 2**7 - 1), ints(-(2**15), 2**15 - 1), ints(-(2**31), 2**31 - 1), ints(-(2**63), 2**63 -
        1),
    )
)  # fmt: skip
def test_ints_come_back(value: Ints) -> None:
    assert codec(Ints).decode(codec(Ints).encode(value)) == value


@given(
    st.builds(
        Mixed,
        st.booleans(), st.text(), st.binary(), st.floats(allow_nan=False),
        st.floats(allow_nan=False, width=32),
        st.none() | ints(0, 2**32 - 1), st.none(), st.lists(ints(0, 2**16 - 1)),
        st.tuples(ints(0, 255), st.text()),
        st.dictionaries(st.text(), ints(0, 2**32 - 1)), st.sampled_from(Color),
    )
)  # fmt: skip
def test_mixed_fields_come_back(value: Mixed) -> None:
    assert codec(Mixed).decode(codec(Mixed).encode(value)) == value


@given(st.sampled_from([Ints, Mixed, KafkaOp, KafkaOpResponse, Control, Body]), st.binary(max_size=300))
def test_arbitrary_bytes_decode_or_give_the_package_error(kind: type, data: bytes) -> None:
    with contextlib.suppress(PostcardError):
        codec(kind).decode(data)


@given(st.sampled_from(sorted(VALUES)), st.data())
def test_damaged_bytes_decode_or_give_the_package_error(name: str, data: st.DataObject) -> None:
    good = bytearray(rust_vectors()[name])
    position = data.draw(st.integers(0, len(good) - 1))
    good[position] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(good)))
    with contextlib.suppress(PostcardError):
        codec(type(VALUES[name])).decode(bytes(good[:cut]))


def test_a_count_beyond_the_input_is_refused_before_a_list_is_built() -> None:
    class Many(msgspec.Struct):
        items: list[U8]

    with pytest.raises(PostcardError, match="items announced"):
        codec(Many).decode(b"\xff\xff\xff\xff\x0f")


def test_a_blob_is_a_view_on_the_input() -> None:
    data = b"\x03abc"
    view = codec(View).decode(data).data
    assert isinstance(view, memoryview)
    assert view.obj is data


def test_large_bytes_are_passed_on_without_a_copy() -> None:
    body = bytes(100_000)
    assert any(part is body for part in codec(View).parts(View([b"head", body])))


@pytest.mark.parametrize("value", [256, -1, "text", None])
def test_a_value_that_does_not_fit_is_our_own_error(value: object) -> None:
    with pytest.raises(UnencodableError):
        codec(Ints).encode(Ints(value, 0, 0, 0, 0, 0, 0, 0))  # type: ignore[arg-type]


def test_bytes_after_the_value_are_refused() -> None:
    with pytest.raises(PostcardError, match="left over"):
        codec(View).decode(b"\x00\x00")


def test_an_int_without_a_width_is_refused_at_compile_time() -> None:
    class Bare(msgspec.Struct):
        number: int

    with pytest.raises(TypeError, match="width"):
        codec(Bare)
