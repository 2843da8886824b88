# SPDX-License-Identifier: Apache-2.0
"""The child's half of the tie: it ends with its supervisor, and says why when it fails."""

import json
import signal
import socket
import subprocess
import sys
import threading

import click
import pytest

from handfast import errors
from handfast.api import status
from handfast.cli import output, supervised


def test_without_a_tie_nothing_happens(monkeypatch):
    threads: list[object] = []
    monkeypatch.setattr(threading, "Thread", threads.append)
    with pytest.raises(errors.Refused, match="no"), supervised.tied(None):
        raise errors.Refused("no", reason="Nope")
    assert threads == []


def test_an_error_is_left_with_the_supervisor_and_goes_on(monkeypatch):
    # The real one would end this process with its supervisor: see below.
    ties: list[socket.socket] = []
    monkeypatch.setattr(supervised, "_follow", lambda tie, _orphaned: ties.append(tie))
    ours, theirs = socket.socketpair()
    with ours:
        with pytest.raises(errors.Refused), supervised.tied(theirs.detach()):
            raise errors.Refused("no", reason="Nope", hint="ask")
        assert json.loads(ours.recv(1000)) == {"error": "no", "hint": "ask", "reason": "Nope", "permanent": True}
    ties[0].close()


def test_a_report_is_what_is_shown():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        supervised.report(theirs, errors.Unavailable("later", reason="Later"))
        assert json.loads(ours.recv(1000)) == {"error": "later", "reason": "Later", "permanent": False}
        ours.close()
        supervised.report(theirs, errors.Unavailable("later", reason="Later"))


@pytest.mark.parametrize(
    ("error", "permanent"),
    [
        (errors.Refused("damaged", reason="StoreCorrupt"), True),
        (click.UsageError("no such option"), False),
        (output.Usage("wrong"), True),
        (errors.Unavailable("full", reason="NoSpace"), False),
        (errors.Refused("taken", reason="AddressInUse"), False),
        (status.StatusError("Forbidden", "not yet"), False),
        (errors.Misuse("a bug"), False),
        (ValueError("a bug"), False),
    ],
)
def test_a_report_says_whether_starting_again_can_help(error, permanent):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        supervised.report(theirs, error)
        assert json.loads(ours.recv(1000))["permanent"] is permanent


SCRIPT = """
import signal, sys, time
from handfast.cli import supervised
if sys.argv[2] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
supervised.GRACE = 0.1
with supervised.tied(int(sys.argv[1]), lambda: print("orphaned", flush=True)):
    print("up", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind, code", [("polite", -signal.SIGTERM), ("deaf", 1)])
def test_the_end_of_the_supervisor_ends_the_child(kind, code):
    ours, theirs = socket.socketpair()
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(theirs.fileno()), kind], pass_fds=[theirs.fileno()], stdout=subprocess.PIPE
    )
    with child, ours:
        theirs.close()
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        assert child.poll() is None
        ours.close()
        assert child.stdout.readline() == b"orphaned\n"
        assert child.wait(10) == code
