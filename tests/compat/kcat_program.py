"""kcat, run as a person runs it, with a time limit."""

import subprocess


class Kcat:
    """The real program, with a time limit."""

    def __init__(self, path: str, bootstrap: str) -> None:
        self._path = path
        self._bootstrap = bootstrap

    @property
    def command(self) -> list[str]:
        return [self._path, "-b", self._bootstrap]

    def run(
        self, *arguments: str, stdin: bytes = b"", timeout: float = 40, fails: bool = False, bootstrap: str = ""
    ) -> subprocess.CompletedProcess[bytes]:
        """Output as bytes. A kcat that ends with an error fails the test, unless it is expected to."""
        done = subprocess.run(
            [self._path, "-b", bootstrap or self._bootstrap, *arguments],
            input=stdin,
            capture_output=True,
            timeout=timeout,
        )
        assert (done.returncode != 0) == fails, done.stderr.decode(errors="replace")
        return done

    def produce(self, topic: str, *lines: str, options: tuple[str, ...] = ()) -> str:
        """Produces lines; what kcat said besides."""
        stdin = "".join(f"{line}\n" for line in lines).encode()
        return self.run("-P", "-t", topic, "-p", "0", *options, stdin=stdin).stderr.decode()

    def consume(self, topic: str, *options: str, form: str = "%s") -> list[str]:
        """All records of partition 0 (or as the options say), one string each."""
        words = ("-C", "-t", topic, "-e", "-q", "-f", f"{form}\\n", *(("-p", "0") if "-p" not in options else ()))
        return self.run(*words, *options).stdout.decode().splitlines()
