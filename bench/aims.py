# SPDX-License-Identifier: Apache-2.0
"""The aims in microseconds, as multiples of what the floor costs: the only form in which a busy machine can be judged.

The aims were set on a machine of two cores with nothing else on its host, where a neutral generator found the floor (a bare
aiohttp handler on uvloop, ECDSA) to cost 60 µs of CPU for a GET on a kept connection and 830 µs for a new TLS connection
with one GET. Beside busy neighbours, the floor and the control plane both cost more; so an aim of so many microseconds is
taken as so many times the floor of the same round. It measures nothing.
"""

from __future__ import annotations

QUIET_GET_MICROSECONDS = 60.0
QUIET_CONNECTION_MICROSECONDS = 830.0


def gets(microseconds: float) -> float:
    """An aim in GETs of the floor."""
    return round(microseconds / QUIET_GET_MICROSECONDS, 2)


def connections(microseconds: float) -> float:
    """An aim in new connections of the floor."""
    return round(microseconds / QUIET_CONNECTION_MICROSECONDS, 2)
