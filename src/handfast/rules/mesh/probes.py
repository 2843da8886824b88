# SPDX-License-Identifier: Apache-2.0
"""What the kubelet asks a Pod over HTTP, by port: the paths that stay open when clients are restricted. It opens nothing itself.

The kubelet has no identity in the mesh. A Pod whose probes were refused would be restarted again and again.

1. Only HTTP probes count, of every container, the proxy's own included. A port is a number, or the name of a port of the same container.
2. A path is compared whole, and without what follows a question mark. Whoever may reach the Pod may ask it: a probe is no place for secrets.
"""

from __future__ import annotations

from collections.abc import Iterator

from handfast.rules.mesh import views


def paths(pod: views.Pod, port: int) -> tuple[str, ...]:
    """The paths that are asked on this port, each once, in order."""
    return tuple(sorted({path for number, path in _all(pod) if number == port}))


def _all(pod: views.Pod) -> Iterator[tuple[int, str]]:
    for container in pod.all_containers:
        for probe in (container.liveness_probe, container.readiness_probe, container.startup_probe):
            if probe is not None and probe.http_get is not None:
                yield _number(container, probe.http_get.port), _path(probe.http_get.path or "")


def _number(container: views.Container, port: int | str | None) -> int:
    # 1. a number, or a name of the same container
    if isinstance(port, int):
        return port
    return next((row.container_port for row in container.ports or () if port and row.name == port), 0)


def _path(text: str) -> str:
    # 2. without what follows a question mark
    path = text.partition("?")[0]
    return path if path.startswith("/") else f"/{path}"
