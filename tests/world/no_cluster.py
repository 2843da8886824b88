# SPDX-License-Identifier: Apache-2.0
"""A machine on which nothing names a cluster, for tests of commands. It starts nothing."""

from __future__ import annotations

import pathlib

import pytest

from handfast.cli import connecting


def arrange(monkeypatch: pytest.MonkeyPatch, directory: pathlib.Path) -> None:
    """Neither the environment, nor the current directory, nor /etc names a kubeconfig."""
    for name in ("KUBECONFIG", "HANDFAST_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(directory)
    monkeypatch.setattr(connecting, "SYSTEM", directory / "etc" / "admin.conf")
