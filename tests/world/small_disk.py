# SPDX-License-Identifier: Apache-2.0
"""A small file system of its own, which a test can fill. What is written there is the test's business.

Only root may mount one. In CI a full disk is a real one, or the run has failed; elsewhere the test is skipped.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def mounted(directory: pathlib.Path, options: str) -> Iterator[pathlib.Path]:
    """A tmpfs on a directory that is there. It is detached even if a failed test left files open."""
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        directory.rmdir()
        give_up = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        give_up("not run: mounting a small file system is not permitted here")
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


@contextlib.contextmanager
def of_mebibytes(size: int) -> Iterator[pathlib.Path]:
    """One of this size. It is not in pytest's own directory, which pytest moves about."""
    directory = pathlib.Path(tempfile.mkdtemp())
    with mounted(directory, f"size={size}m"):
        yield directory
    directory.rmdir()
