# SPDX-License-Identifier: Apache-2.0
"""Children that the kernel ends with their parent: the look at the parent, the environment, the end."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from handfast.runtime import tethers


def test_a_child_whose_parent_is_gone_does_not_start():
    words = list(tethers.command(["/bin/echo", "served"], {}))
    words[words.index(str(os.getpid()))] = str(os.getpid() + 1)
    done = subprocess.run(words, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (125, b"")


@pytest.mark.parametrize("variables", [{}, {"A": "b"}, {"LC_CTYPE": "C", "A": "b c"}])
def test_a_child_has_its_own_environment_and_nothing_else(variables):
    words = tethers.command(["/usr/bin/env"], variables)
    done = subprocess.run(words, capture_output=True, check=True, env=variables)
    assert sorted(done.stdout.decode().splitlines()) == sorted(f"{name}={value}" for name, value in variables.items())


def test_a_child_has_its_own_first_word_and_the_signals_of_a_fresh_process():
    words = tethers.command(["sh", "-c", "echo $0; grep SigIgn /proc/self/status"], {}, program="/bin/sh")
    done = subprocess.run(words, capture_output=True, check=True, env={}, text=True)
    name, _, ignored = done.stdout.split()
    assert name == "sh"
    # What Python ignores; what whoever runs the tests ignores is not its business.
    assert int(ignored, 16) & sum(1 << (number - 1) for number in (signal.SIGPIPE, signal.SIGXFSZ)) == 0


def test_what_cannot_be_executed_is_told_with_the_exit_code_of_a_shell(tmp_path):
    path = tmp_path / "script"
    path.write_text("#!/nowhere/at/all\n")
    path.chmod(0o755)
    done = subprocess.run(tethers.command([str(path)], {}), capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr) == (126, f"cannot execute {path}: No such file or directory\n")


@pytest.mark.slow
def test_it_dies_with_its_parent():
    script = (
        "import subprocess, time\n"
        "from handfast.runtime import tethers\n"
        "print(subprocess.Popen(tethers.command(['/bin/sleep', '60'], {}), env={}).pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        # Once it is what it becomes, the kernel knows.
        until(lambda: "sleep" in comm(pid))
        parent.send_signal(signal.SIGKILL)
    until(lambda: comm(pid) == "")


def comm(pid: int) -> str:
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if text.rpartition(")")[2].split()[0] == "Z" else text


def until(question):
    deadline = time.monotonic() + 20
    while not question():
        assert time.monotonic() < deadline
        time.sleep(0.02)


async def test_a_child_that_does_not_listen_is_killed():
    script = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    await tethers.end(child, 0.2)
    assert await tethers.ended(child) == -signal.SIGKILL
    child.stdout.close()


async def test_its_code_is_told_and_a_second_look_is_the_same():
    child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
    assert (await tethers.ended(child), await tethers.ended(child)) == (7, 7)
    await tethers.end(child, 1.0)
