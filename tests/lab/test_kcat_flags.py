"""kcat's command line: flags as kcat reads them, and one line of help for what it does not take."""

from pathlib import Path

import pytest

from lab.errors import KcatError
from lab.kcat_flags import parse, unescape
from lab.kcat_format import Printed, formatted, one_text
from lab.kcat_input import rows_of_input
from rafka_lab.rows import NewRow

RECORD = Printed("t", 3, 42, 1, 1700000000000, b"key", "wört".encode(), [("a", b"1"), ("b", None)])


def words(line: str, *, has_input: bool = False):  # type: ignore[no-untyped-def]
    return parse(line.split(), has_input=has_input)


def test_flags_are_read_as_kcat_reads_them() -> None:
    asked = words("-C -b host:1 -t top -p 2 -o -5 -o e@99 -c 7 -e -K: -f %s -J -X a.b=c -X topic.d=e=f -u -q -Z")
    assert (asked.mode, asked.brokers, asked.topics, asked.partition) == ("C", "host:1", ("top",), 2)
    assert (asked.offset, asked.until_ms, asked.count, asked.exit_at_end) == ("-5", 99, 7, True)
    assert (asked.key_delimiter, asked.format, asked.json, asked.null) == (":", "%s", True, True)
    assert asked.settings == {"a.b": "c", "d": "e=f"}
    assert words("-Ct top -e").topics == ("top",)
    assert words("-G group one two -e").topics == ("one", "two")
    assert words("-P -t top -H a=1 -H b -z lz4 -k key").headers == (("a", b"1"), ("b", None))


def test_the_mode_is_what_kcat_would_guess() -> None:
    assert words("-t top").mode == "C"
    assert words("-t top", has_input=True).mode == "P"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-Y", "option -Y not recognized; usage: %kcat"),
        ("-C", "-t <topic> missing; usage"),
        ("-C -t", "option -t requires argument; usage"),
        ("-C -P -t a", "two modes"),
        ("-C -t a -o tomorrow", "-o tomorrow: use beginning"),
        ("-C -t a -c many", "-c many: give a whole number"),
        ("-C -t a -c -1", "-c -1: give a whole number"),
        ("-P -t a -z zip", "-z zip: use one of none, gzip"),
        ("-P -t a -H =v", "expected name=value"),
        ("-C -t a -X nonsense", "expected property=value"),
        ("-C -t a -t b", "one -t only"),
        ("-G g", "expects a list of topics"),
        ("-C -t a -s key=i", "-s is not available: "),
        ("-C -t a -O", "-O is not available: use -f"),
    ],
)
def test_a_wrong_flag_is_one_line_that_helps(line: str, said: str) -> None:
    with pytest.raises(KcatError) as caught:
        words(line)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_escapes() -> None:
    assert unescape(r"a\tb\n\x41\\\q") == "a\tb\nA\\q"


def test_format_strings() -> None:
    assert formatted(RECORD, r"%t[%p]@%o %k(%K)=%s(%S) %T %h %%\n") == (
        "t[3]@42 key(3)=wört(5) 1700000000000 a=1,b=NULL %\n"
    )
    nothing = RECORD._replace(key=None, value=None, headers=[])
    assert formatted(nothing, "%k|%K|%s|%S|%h") == "|-1||-1|"
    assert formatted(nothing, "%k %s", null=True) == "NULL NULL"
    assert formatted(RECORD, "%R") == "\x00\x00\x00\x05"
    with pytest.raises(KcatError, match="unsupported formatter %q"):
        formatted(RECORD, "%q")


def test_delimiters_and_envelopes() -> None:
    assert one_text(RECORD, words(r"-C -t t -K: -D \n--\n")) == "key:wört\n--\n"
    assert one_text(RECORD, words("-C -t t -J")) == (
        '{"topic":"t","partition":3,"offset":42,"tstype":"create","ts":1700000000000,"broker":0,'
        '"headers":["a","1","b",null],"key":"key","payload":"wört"}\n'
    )


def sent(line: str, text: str | None = None) -> list[NewRow]:
    return list(rows_of_input(words(line, has_input=text is not None), text))


def test_input_is_cut_as_kcat_cuts_its_stdin(tmp_path: Path) -> None:
    assert sent("-P -t t", "a\n\nb\n") == [NewRow(None, b"a", []), NewRow(None, b"b", [])]
    assert sent("-P -t t -K:", "k:v:w\nplain") == [NewRow(b"k", b"v:w", []), NewRow(None, b"plain", [])]
    assert sent("-P -t t -K: -k fixed", "k:v\nplain") == [NewRow(b"k", b"v", []), NewRow(b"fixed", b"plain", [])]
    assert sent("-P -t t -K: -Z", "k:\n:v") == [NewRow(b"k", None, []), NewRow(None, b"v", [])]
    assert sent("-P -t t -D, -c 2 -p 1", "a,b,c") == [NewRow(None, b"a", [], 1), NewRow(None, b"b", [], 1)]
    file = tmp_path / "lines.txt"
    file.write_text("one\ntwo\n")
    assert sent(f"-P -t t {file}") == [NewRow(None, b"one\ntwo\n", [])]
    assert sent(f"-P -t t -l {file}") == [NewRow(None, b"one", []), NewRow(None, b"two", [])]
    with pytest.raises(KcatError, match="nothing to send"):
        sent("-P -t t")
    with pytest.raises(KcatError, match="No such file"):
        sent(f"-P -t t {tmp_path / 'none'}")
