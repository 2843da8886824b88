# SPDX-License-Identifier: Apache-2.0
"""An API that a command reaches by the kubeconfig "k", without a server; nothing here is under test."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Self, TypeVar

import pytest
import structlog

from handfast.cli import connecting

T = TypeVar("T", bound="Reached")


class Reached:
    """The API behind whatever kubeconfig was chosen."""

    @contextlib.asynccontextmanager
    async def connected(self, path: str) -> AsyncIterator[Self]:
        assert path == "k"
        yield self


@contextlib.contextmanager
def reached(monkeypatch: pytest.MonkeyPatch, made: T) -> Iterator[T]:
    """Whoever connects now, connects to this."""
    monkeypatch.setattr(connecting, "connected", made.connected)
    monkeypatch.setenv("KUBECONFIG", "k")
    yield made
    structlog.reset_defaults()
