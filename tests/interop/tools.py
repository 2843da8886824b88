# SPDX-License-Identifier: Apache-2.0
"""handfast and kubeadm as commands that tests can run. It proves nothing itself.

kubeadm is taken from `KUBEADM` or the path. No Debian package has it, so that a machine without one is reported as not
run (a skip that says so), also in CI: what was seen with it is in docs/interop.md.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.interop import running
from tests.world import warm

HANDFAST = (sys.executable, "-m", "handfast")


@dataclass(frozen=True, slots=True)
class Tool:
    """A command; the words before and after what a test says are the same each time."""

    words: tuple[str, ...]
    last: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: object, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        words, variables = [*self.words, *map(str, arguments), *self.last], {**os.environ, **self.environment}
        seconds = 2 * running.DEADLINE
        if tuple(words[: len(HANDFAST)]) == HANDFAST:
            done = warm.run(words[len(HANDFAST) :], variables, seconds)
        else:
            done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, env=variables, check=False)
        assert code in {None, done.returncode}, f"{arguments}: {done.stdout}{done.stderr}"
        return done


def handfast_token(plane: running.ControlPlane) -> Tool:
    return Tool((*HANDFAST, "token"), ("--kubeconfig", str(plane.kubeconfig)))


def find_kubeadm(home: pathlib.Path) -> Tool:
    """kubeadm, which writes below `home` and nowhere else."""
    binary = os.environ.get("KUBEADM") or shutil.which("kubeadm")
    if binary is None:
        pytest.skip("not run: there is no kubeadm; KUBEADM names one that was built from source")
    places = ("HOME", "KUBEADM_JOIN_DRYRUN_DIR", "KUBEADM_INIT_DRYRUN_DIR", "TMPDIR")
    return Tool((binary,), environment=dict.fromkeys(places, str(home)))


def kubeadm_token(kubeadm: Tool, plane: running.ControlPlane) -> Tool:
    return Tool((*kubeadm.words, "token"), ("--kubeconfig", str(plane.kubeconfig)), kubeadm.environment)


def listed(token_tool: Tool) -> dict[str, Any]:
    """The documents of `token list -o json`, by token."""
    text, decoder, found = token_tool("list", "-o", "json").stdout.strip(), json.JSONDecoder(), {}
    while text:
        document, end = decoder.raw_decode(text)
        found[document["token"]] = document
        text = text[end:].lstrip()
    return found
