# SPDX-License-Identifier: Apache-2.0
"""The settings of the mesh's services: where each listens, and where it is said to be. `config` resolves them.

What the mesh itself is set to, such as its trust domain, is in the cluster: see `rules.mesh.settings`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from handfast.assembly import setting_rows, setting_values

_ADVERTISED: Final = "HOST:PORT with a port that is not 0, as in 192.0.2.1:8080 or [2001:db8::1]:8080"
# What a service is, how it is served, and its port.
_DOORS: Final = {
    "identity": ("the identity service of the mesh", "in plaintext on loopback, with TLS elsewhere", 8080),
    "destination": ("the destination service of the mesh", "in plaintext on loopback, with TLS elsewhere", 8086),
    "policy": ("the policy service of the mesh", "in plaintext on loopback, with TLS elsewhere", 8090),
    "agents": ("the channel of the mesh to its agents", "always with TLS", 8089),
    "injector": ("the injector's webhook", "always with TLS", 8443),
}
# The processes that serve them, and where each has its health and metrics.
_ADMIN: Final = {"identity": 9992, "destination": 9996, "injector": 9995}


def _rows() -> Iterator[setting_rows.Setting]:
    yield setting_rows.Setting(
        "mesh",
        setting_values.boolean,
        False,
        "true or false",
        "give workloads certificates in the names of their service accounts: the mesh is installed, and its services run",
    )
    for name, (what, how, port) in _DOORS.items():
        yield setting_rows.Setting(
            f"{name}Listen",
            setting_values.address,
            f"127.0.0.1:{port}",
            setting_rows.HOST_PORT,
            f"where {what} listens: {how}",
        )
        if name in _ADMIN:
            yield setting_rows.Setting(
                f"{name}AdminListen",
                setting_values.address,
                f"127.0.0.1:{_ADMIN[name]}",
                setting_rows.HOST_PORT,
                f"where {what} has its health and metrics",
            )
        yield setting_rows.Setting(
            f"{name}Advertise",
            # The API server finds the webhook by an EndpointSlice, which has no names.
            setting_values.advertised_ip if name == "injector" else setting_values.advertised,
            None,
            _ADVERTISED,
            f"where {what} is, as workloads and the API server are told by `up`; without it, where it listens",
        )


ROWS: Final = tuple(_rows())
KEYS: Final = tuple(row.key for row in ROWS)
# The keys of all ports that the services have.
LISTEN: Final = tuple(key for key in KEYS if key.endswith("Listen"))
