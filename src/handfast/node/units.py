# SPDX-License-Identifier: Apache-2.0
"""The systemd unit by which a joined machine keeps its agent across reboots: its text, and putting it in place.

It starts nothing by itself where systemd does not run: then it says which commands remain.

1. No word can become more than a word of the command: each is quoted, and what cannot be printed is refused.
2. The command is the program that writes the unit, by its own path: what `PATH` says, and the directory that somebody
   stands in, do not matter. Where others than root could change that program, that is told (`exposed`).
3. The agent gets no more rights than it starts with, and may write its own places only.
"""

from __future__ import annotations

import pathlib
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import handfast
from handfast import errors
from handfast.runtime import files

NAME: Final = "handfast-node.service"
# How a unit of ours begins, and nobody else's.
FIRST_LINE: Final = "# Written by `handfast join --systemd`"
DIRECTORY: Final = pathlib.Path("/etc/systemd/system")
# Where systemd says that it is the one that booted the machine (sd_booted).
BOOTED: Final = pathlib.Path("/run/systemd/system")
_SECONDS: Final = 60
# With PrivateTmp the unit sees others of these, which are empty.
_TEMPORARY: Final = (pathlib.Path("/tmp"), pathlib.Path("/var/tmp"))  # noqa: S108 - recognised, not used

Run = Callable[[Sequence[str]], None]


def text(words: Sequence[str], writable: Sequence[pathlib.Path] = ()) -> str:
    """The unit that runs this command line, with the directories that it may write."""
    command, *arguments = words
    if not command.startswith("/") or "$" in command:
        raise errors.Refused(
            f"{command!r} cannot be run by a systemd unit: it takes a path from the root, without $", reason="BadPath"
        )
    # $ stands for a variable in arguments only.
    line = " ".join((_quoted(command), *(_quoted(word).replace("$", "$$") for word in arguments)))
    # A program that was installed there, say in a clone to try it, has to be seen as well.
    needed = (*writable, *(each for path in _parts(command) for each in (path.absolute(), path.resolve())))
    own_tmp = not any(path.is_relative_to(place) for path in needed for place in _TEMPORARY)
    return (
        f"{FIRST_LINE}; changes are lost when it is run again.\n"
        "[Unit]\n"
        "Description=Handfast node agent\n"
        "Wants=network-online.target\n"
        "After=network-online.target\n"
        "# The agent ends after five minutes without a certificate. It is started again for ever.\n"
        "StartLimitIntervalSec=0\n\n"
        "[Service]\n"
        f"ExecStart={line}\n"
        "Restart=always\n"
        "RestartSec=10\n"
        "UMask=0077\n"
        # 3. no more rights than it starts with, and its own places to write
        "NoNewPrivileges=yes\n"
        "ProtectSystem=strict\n"
        # The dash: what is not there is the agent's to tell, in better words.
        + "".join(f"ReadWritePaths={_quoted(f'-{path}')}\n" for path in dict.fromkeys(writable))
        + ("PrivateTmp=yes\n" if own_tmp else "")
        + "\n[Install]\nWantedBy=multi-user.target\n"
    )


def _quoted(word: str) -> str:
    """One word, quoted as systemd reads it (1): % is its own sign, and quotes group."""
    if not word.isprintable():
        raise errors.Refused(f"{word!r} cannot be written in a systemd unit", reason="BadPath")
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%") + '"'


def program() -> list[str]:
    """The program that writes the unit, by its own path (2)."""
    script = pathlib.Path(sys.executable).with_name("handfast")
    return [str(script)] if script.is_file() else [sys.executable, "-P", "-m", "handfast"]


def exposed(words: Sequence[str]) -> str:
    """What of this command others than root could change, and so what root runs; empty if nothing."""
    for path in _parts(words[0]):
        for place in _way_to(path):
            if _is_open(place):
                return str(place)
    return ""


def _parts(command: str) -> tuple[pathlib.Path, ...]:
    """What runs when this command does: itself, Python, and Handfast."""
    package = pathlib.Path(handfast.__file__).parent
    return pathlib.Path(command), pathlib.Path(sys.executable), package, package / "__main__.py"


def _way_to(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """The path and every directory above it, and those of what links lead to."""
    for place in dict.fromkeys((path.absolute(), path.resolve())):
        yield place
        yield from place.parents


def _is_open(path: pathlib.Path) -> bool:
    try:
        entry = path.stat()
    except OSError:
        # What is not there, or out of reach, is not told as open: starting it will tell.
        return False
    shared = entry.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    # In a directory such as /tmp nobody can replace what is another's.
    sticky = stat.S_ISDIR(entry.st_mode) and entry.st_mode & stat.S_ISVTX
    return entry.st_uid != 0 or bool(shared and not sticky)


def install(
    words: Sequence[str],
    directory: pathlib.Path = DIRECTORY,
    run: Run | None = None,
    *,
    writable: Sequence[pathlib.Path] = (),
) -> tuple[pathlib.Path, str]:
    """Write the unit and have it started; where it is, and the commands that are left to a person, if any."""
    path = directory / NAME
    with files.otherwise("name another directory with --systemd-dir, or leave --systemd out"):
        files.create_directory(directory, mode=0o755)
        files.write_atomically(path, text(words, writable).encode("utf-8"), mode=0o644)
    commands = (["systemctl", "daemon-reload"], ["systemctl", "enable", "--now", NAME])
    if directory != DIRECTORY or not BOOTED.is_dir():
        return path, " && ".join(" ".join(command) for command in commands)
    for command in commands:
        (run or _run)(command)
    return path, ""


def stop(directory: pathlib.Path = DIRECTORY, run: Run | None = None) -> None:
    """Stop the agent, and have it started no more; where systemd does not run, there is nothing to stop."""
    if directory == DIRECTORY and BOOTED.is_dir():
        (run or _run)(["systemctl", "disable", "--now", NAME])


def forget(directory: pathlib.Path = DIRECTORY, run: Run | None = None) -> None:
    """Have systemd notice that the unit is gone."""
    if directory == DIRECTORY and BOOTED.is_dir():
        (run or _run)(["systemctl", "daemon-reload"])


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _failed(command, str(error)) from error
    if done.returncode != 0:
        raise _failed(command, done.stderr.strip() or f"exit code {done.returncode}")


def _failed(command: Sequence[str], why: str) -> errors.Unavailable:
    return errors.Unavailable(
        f"{' '.join(command)}: {why}",
        reason="SystemdFailed",
        hint=f"see `systemctl status {NAME}`, and run that command again",
    )
