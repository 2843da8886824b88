# SPDX-License-Identifier: Apache-2.0
"""What there is to be served, whether it comes from a cluster or from a directory. It holds the types that both share, and no I/O."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from handfast.rules.machine_config import requester


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A rendering, and what goes into it only when it is served. The kubeconfig does not print.

    `key` tells one from another; `document` gives the rendered MachineConfig, where that is needed.
    """

    rendering: str
    key: Hashable
    document: Callable[[], Mapping[str, Any]] = field(repr=False)
    kubeconfig: bytes = field(repr=False)
    kubelet_ca: bytes = field(repr=False)


class Source(Protocol):
    """Where configurations come from, and what is known of who asks."""

    def not_ready(self) -> str | None:
        """What is missing before anybody can be answered; None: nothing."""
        ...

    def known(self) -> requester.Known: ...

    def offer(self, pool: str, node: str, /) -> Offer | requester.Refusal:
        """What a machine of the pool is served, or the Node of that name where one asks as itself."""
        ...
