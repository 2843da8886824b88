# SPDX-License-Identifier: Apache-2.0
"""Names that one process has at a time."""

import os
import subprocess
import sys

import pytest

from handfast.runtime import claims

NAME = f"test/{os.getpid()}"


def test_a_name_is_taken_once_and_given_back():
    with claims.Claims() as first, claims.Claims() as second:
        assert first.take(NAME)
        assert not second.take(NAME)
        assert not first.take(NAME)
        first.drop(NAME)
        first.drop(NAME)
        assert second.take(NAME)
    with claims.Claims() as third:
        assert third.take(NAME)


@pytest.mark.slow
def test_a_name_ends_with_its_process():
    script = f"from handfast.runtime import claims; print(claims.Claims().take({NAME!r}))"
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout == "True\n"


def test_a_name_that_no_kernel_takes_is_an_error():
    with claims.Claims() as held, pytest.raises(OSError, match="too long"):
        held.take("x" * 200)
