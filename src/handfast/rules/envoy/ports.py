# SPDX-License-Identifier: Apache-2.0
"""A port of a workload, and how Envoy's resources for it are called. It builds none of them.

In explicit mode each port has a listener, two clusters and two sets of routes of its own. Policy and reports know it by the number that clients call.
In transparent mode there is one of each for every port (`EVERY`), whose names have no number.
"""

from __future__ import annotations

from typing import Final

import msgspec


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """The port that clients call, and where the application listens; of an `opaque` one the bytes are passed on, and nothing is detected."""

    number: int
    application: int
    host: str = "127.0.0.1"
    opaque: bool = False

    @property
    def listener(self) -> str:
        return self._named("inbound")

    @property
    def routes(self) -> str:
        return self._named("inbound")

    @property
    def plaintext_routes(self) -> str:
        return self._named("inbound-plaintext")

    @property
    def cluster(self) -> str:
        return self._named("application")

    @property
    def http1_cluster(self) -> str:
        """The application, in HTTP/1.1 whatever came."""
        return self._named("application-http1")

    def _named(self, what: str) -> str:
        return f"{what}-{self.number}" if self.number else what


# All of them at once.
EVERY: Final = Port(number=0, application=0)
