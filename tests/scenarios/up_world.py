# SPDX-License-Identifier: Apache-2.0
"""`handfast up` as a real process on free ports, and what a client sees of it."""

import contextlib
import http.client
import json
import os
import pathlib
import pty
import queue
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self
from urllib import parse as urls

from handfast.bootstrap import kubeconfig
from handfast.runtime import tls
from tests.world import last_words, looking, warm

COMMAND = (sys.executable, "-m", "handfast")
FREE = (
    *("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"),
    *("--machine-config-listen", "127.0.0.1:0", "--machine-config-admin-listen", "127.0.0.1:0"),
)
ENDED = ""


def environment() -> dict[str, str]:
    """This process's own, without what would change the settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("HANDFAST_")}


def run(*arguments: object, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """A command that is expected to end by itself."""
    return run_in(environment(), *arguments, seconds=seconds)


def run_in(variables: Mapping[str, str], *arguments: object, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """The same with these variables."""
    return warm.run([*map(str, arguments)], variables, seconds)


def alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and was not waited for does not."""
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def until(question: Any, seconds: float = 20, what: str = "it") -> None:
    begun = looked = time.monotonic()
    while not question():
        now = time.monotonic()
        assert now < begun + seconds, f"waited {seconds} s for {what}"
        time.sleep(looking.pause(now - looked, now - begun))
        looked = time.monotonic()


def context_of(path: pathlib.Path) -> ssl.SSLContext:
    """TLS with what is in this kubeconfig."""
    config = kubeconfig.parse(path.read_text())
    assert config.user is not None
    return tls.client_context(
        config.cluster.certificate_authority_data,
        config.user.client_certificate_data,
        config.user.client_key_data,
    )


class Terminal:
    """A program on a terminal of its own, whose foreground it is; leaving the block ends it."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], directory: pathlib.Path | None = None
    ) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            words,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=directory,
            env={"TERM": "xterm", **environment},
            start_new_session=True,
        )
        os.close(theirs)
        self._seen = bytearray()
        last_words.heard(f"terminal of {words[0]}", lambda: bytes(self._seen))
        # All the time: who writes to a terminal that nobody reads waits.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        # A terminal whose last program has ended is an error, not an end of file.
        with contextlib.suppress(OSError):
            while data := os.read(self._ours, 4096):
                self._seen += data

    @property
    def text(self) -> str:
        # What is read may end within a character.
        return self._seen.decode(errors="replace").replace("\r\n", "\n")

    def shows(self, text: str, seconds: float = 90) -> str:
        """Everything that was shown, once `text` was."""
        with contextlib.suppress(AssertionError):
            until(lambda: text in self.text or self.process.poll() is not None, seconds)
        assert text in self.text, f"not shown: {text}\n{self.text}"
        return self.text

    def interrupt(self) -> None:
        """Ctrl-C, which reaches everyone in the foreground."""
        os.killpg(self.process.pid, signal.SIGINT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Ended already, if all went well.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        self._reader.join(30)
        os.close(self._ours)


class Up:
    """A running control plane; leaving the block ends whatever is left of it."""

    def __init__(self, directory: pathlib.Path, *arguments: object) -> None:
        self.directory = directory
        self.log = directory.parent / f"{directory.name}.log"
        words = [*COMMAND, "up", "--dir", str(directory), "-o", "json", *FREE, *map(str, arguments)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, env=environment(), text=True)
        self.facts: dict[str, Any] = {}
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        text = ""
        for line in self.process.stdout:
            text += line
            if line == "}\n":
                self._lines.put(text)
                text = ""
        self._lines.put(ENDED)

    def ready(self) -> Self:
        with contextlib.suppress(queue.Empty):
            if (text := self._lines.get(timeout=120)) != ENDED:
                self.facts = json.loads(text)
                return self
        raise AssertionError(f"not ready:\n{self.log.read_text()}")

    def pids(self) -> dict[str, int]:
        found: dict[str, int] = json.loads((self.directory / "endpoints.json").read_bytes())["pids"]
        return found

    def context(self) -> ssl.SSLContext:
        return context_of(self.directory / "admin.conf")

    def connection(self, context: ssl.SSLContext, seconds: float = 30) -> http.client.HTTPSConnection:
        url = urls.urlsplit(self.facts["apiserver"])
        return http.client.HTTPSConnection(url.hostname or "", url.port, context=context, timeout=seconds)

    def call(self, method: str, path: str, body: object = None, seconds: float = 30) -> tuple[int, dict[str, Any]]:
        """As the administrator."""
        with contextlib.closing(self.connection(self.context(), seconds)) as connection:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def is_ready(self) -> bool:
        """Whether the API server says so."""
        with contextlib.closing(self.connection(self.context())) as connection:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200

    def checked(self) -> tuple[int, dict[str, dict[str, str]]]:
        """The exit code of `handfast check`, and every check by its name."""
        done = run("check", "--dir", self.directory, "-o", "json")
        return done.returncode, {row["name"]: row for row in json.loads(done.stdout)["checks"]}

    def create_config_map(self, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        code, answer = self.call("POST", "/api/v1/namespaces/default/configmaps", body)
        assert code == 201, answer

    def has_config_map(self, name: str) -> bool:
        return self.call("GET", f"/api/v1/namespaces/default/configmaps/{name}")[0] == 200

    def readiness(self) -> tuple[int, str]:
        """What the controllers say of themselves; 0: nothing."""
        url = urls.urlsplit(self.facts["controllersAdmin"])
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=30)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/readyz")
            response = connection.getresponse()
            return response.status, response.read().decode()
        return 0, ""

    def events(self) -> list[dict[str, Any]]:
        """The lines of the log that are JSON."""
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """The exit code, and the seconds it took."""
        begun = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(30)
        return code, time.monotonic() - begun

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pids = self.pids() if (self.directory / "endpoints.json").exists() else {}
        self.process.kill()
        self.process.wait(30)
        # Its children end by themselves: that they do is tested, too.
        until(lambda: not any(alive(pid) for pid in pids.values()), what="the children's end")
        self._reader.join(30)
        assert self.process.stdout is not None
        self.process.stdout.close()
