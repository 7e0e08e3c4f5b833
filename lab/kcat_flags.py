"""kcat's command line, read into an `Invocation`. Talks to nobody."""

import getopt
import re
from dataclasses import dataclass, field
from pathlib import Path

from lab.errors import KcatError

USAGE = (
    "usage: %kcat -C|-P|-L|-Q|-G GROUP [-t TOPIC] [-b BROKERS] [-p N] [-o OFFSET] [-c N] [-e] ...; %kcat -h tells all"
)
HELP = """\
%kcat [-C|-P|-L|-Q|-G GROUP] [options] [topics or files]     the running lab, unless -b names brokers
%%kcat -P -t TOPIC                                           the cell's text is what is sent

  -C -P -L -Q     consume (default of %kcat), produce (default of %%kcat), list metadata, query offsets by time
  -G GROUP        consume as a member of a group; the topics follow
  -t TOPIC        topic; with -Q topic:partition:milliseconds, more than once if need be
  -b HOST:PORT    brokers
  -p N            partition; -1 is any
  -o OFFSET       beginning, end, stored, N, -N from the end, s@ms from that time, e@ms up to that time
  -c N            stop after N records
  -e              stop at the end of the partitions
  -K DELIM        between key and value       -D DELIM  between records
  -k KEY          a fixed key                 -H N=V    a header, may be given again
  -z CODEC        none, gzip, snappy, lz4, zstd
  -f FORMAT       %s %S %R %k %K %T %h %t %p %o \\n \\t \\xNN
  -J              a JSON envelope a line      -Z        null for what is empty
  -l              split the file by -D        -u        no buffering (there is none)
  -q              quiet (it is)
  -m SECONDS      wait so long for brokers (5)
  -X NAME=VALUE   librdkafka's setting, may be given again
"""
_FLAGS = "CPLQG:t:b:p:o:c:eK:D:k:H:z:f:JZulqm:X:hV"
_NOT_HERE = {
    "-F": "use -X for each setting",
    "-s": "records come as text or bytes; unpack them with struct or pandas",
    "-r": "there is no schema registry here",
    "-d": "use -X debug=...; librdkafka writes to the kernel's log",
    "-O": "use -f '%o %s\\n'",
    "-T": "the records sent are returned",
    "-E": "errors are shown and end the command",
    "-v": "there is nothing more to say",
    "-M": "use real kcat",
    "-A": "use real kcat",
    "-U": "use real kcat",
}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|.)")
_PLAIN_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "0": "\0"}
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DEFAULT_METADATA_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """What the command line asks for."""

    mode: str  # C, P, L, Q, G, h or V
    brokers: str | None = None
    topics: tuple[str, ...] = ()
    group: str | None = None
    partition: int | None = None
    offset: str | None = None
    until_ms: int | None = None
    count: int | None = None
    exit_at_end: bool = False
    key_delimiter: str | None = None
    delimiter: str | None = None
    key: str | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    codec: str = "none"
    format: str | None = None
    json: bool = False
    null: bool = False
    lines: bool = False
    metadata_seconds: float = DEFAULT_METADATA_SECONDS
    settings: dict[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()

    @property
    def as_text(self) -> bool:
        """Whether output is wanted in kcat's own form and not as a table."""
        return bool(self.format or self.json or self.key_delimiter or self.delimiter)


def parse(words: list[str], *, has_input: bool) -> Invocation:
    """Reads the words behind `kcat`. `has_input`: there is a cell's text, so that producing is meant."""
    try:
        options, rest = getopt.gnu_getopt(words, _FLAGS)
    except getopt.GetoptError as error:
        flag = f"-{error.opt}"
        hint = _NOT_HERE.get(flag)
        raise KcatError(f"{flag} is not available: {hint}" if hint else f"{error.msg}; {USAGE}") from None
    given: dict[str, list[str]] = {}
    for flag, value in options:
        given.setdefault(flag, []).append(value)
    mode = _mode(given, has_input=has_input)
    if mode in ("h", "V"):
        return Invocation(mode=mode)
    topics = tuple(given.get("-t", ())) + (tuple(rest) if mode == "G" else ())
    _check_topics(mode, topics)
    offset, until = _offset(given.get("-o", []))
    return Invocation(
        mode=mode,
        brokers=_last(given, "-b"),
        topics=topics,
        group=_last(given, "-G"),
        partition=_whole(given, "-p", least=-1),
        offset=offset,
        until_ms=until,
        count=_whole(given, "-c", least=0),
        exit_at_end="-e" in given,
        key_delimiter=_text(given, "-K"),
        delimiter=_text(given, "-D"),
        key=_last(given, "-k"),
        headers=tuple(_header(text) for text in given.get("-H", ())),
        codec=_codec(given),
        format=_last(given, "-f"),
        json="-J" in given,
        null="-Z" in given,
        lines="-l" in given,
        metadata_seconds=float(_whole(given, "-m", least=1) or DEFAULT_METADATA_SECONDS),
        settings=dict(_setting(text) for text in given.get("-X", ())),
        files=tuple(Path(name) for name in rest) if mode == "P" else (),
    )


def unescape(text: str) -> str:
    """kcat's escapes: newline, tab, carriage return and any character by its number."""
    return _ESCAPE.sub(_unescaped, text)


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] == "x" and len(code) > 1:
        return chr(int(code[1:], 16))
    return _PLAIN_ESCAPES.get(code, code)


def _mode(given: dict[str, list[str]], *, has_input: bool) -> str:
    asked = [flag[1] for flag in ("-h", "-V", "-C", "-P", "-L", "-Q", "-G") if flag in given]
    if asked and asked[0] in ("h", "V"):
        return asked[0]
    if len(asked) > 1:
        raise KcatError(f"-{asked[0]} and -{asked[1]} are two modes: choose one; {USAGE}")
    return asked[0] if asked else ("P" if has_input else "C")


def _check_topics(mode: str, topics: tuple[str, ...]) -> None:
    if mode in ("C", "P", "Q") and not topics:
        raise KcatError(f"-t <topic> missing; {USAGE}")
    if mode == "G" and not topics:
        raise KcatError(f"-G expects a list of topics to subscribe to; {USAGE}")
    if mode in ("C", "P", "L") and len(topics) > 1:
        raise KcatError(f"one -t only, not {', '.join(topics)}; -G takes several topics")


def _last(given: dict[str, list[str]], flag: str) -> str | None:
    return given[flag][-1] if flag in given else None


def _text(given: dict[str, list[str]], flag: str) -> str | None:
    value = _last(given, flag)
    return None if value is None else unescape(value)


def _whole(given: dict[str, list[str]], flag: str, *, least: int) -> int | None:
    value = _last(given, flag)
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError:
        number = least - 1
    if number < least:
        raise KcatError(f"{flag} {value}: give a whole number of at least {least}")
    return number


def _offset(texts: list[str]) -> tuple[str | None, int | None]:
    start, until = None, None
    for text in texts:
        if not re.fullmatch(r"beginning|end|stored|-?\d+|[se]@\d+", text):
            raise KcatError(f"-o {text}: use beginning, end, stored, N, -N, s@milliseconds or e@milliseconds")
        if text.startswith("e@"):
            until = int(text[2:])
        else:
            start = text
    return start, until


def _header(text: str) -> tuple[str, bytes | None]:
    name, separator, value = text.partition("=")
    if not name:
        raise KcatError(f"-H {text}: expected name=value")
    return name, value.encode() if separator else None


def _codec(given: dict[str, list[str]]) -> str:
    codec = _last(given, "-z") or "none"
    if codec not in _CODECS:
        raise KcatError(f"-z {codec}: use one of {', '.join(_CODECS)}")
    return codec


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise KcatError(f"-X {text}: expected property=value (librdkafka's CONFIGURATION.md lists them)")
    return name.removeprefix("topic."), value
