# SPDX-License-Identifier: Apache-2.0
"""No core file of a process that holds a key, and none of what it executes."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOOK = "import resource; print(resource.getrlimit(resource.RLIMIT_CORE))"
SCRIPT = f"""
import ctypes, os, resource, sys
from handfast.runtime import core_dumps
core_dumps.forbid()
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), flush=True)
os.execv(sys.executable, [sys.executable, "-c", {LOOK!r}])
"""


@pytest.mark.slow
def test_no_core_file_of_the_process_or_of_what_it_executes():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["0", "(0, 0)"]
