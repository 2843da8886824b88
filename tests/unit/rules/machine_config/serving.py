# SPDX-License-Identifier: Apache-2.0
"""Renderings as a machine-config server answers with them, for the tests of those who apply them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from handfast.rules.machine_config import data_urls, merging, names, rendering, served

KUBECONFIG = b"apiVersion: v1\nkind: Config\n# the credential\n"
CA = b"-----BEGIN CERTIFICATE-----\n"


@dataclass(frozen=True)
class Credential:
    """As much of one as a rendering needs."""

    kubeconfig: bytes
    kind: str = names.SERVICE_ACCOUNT

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.kubeconfig).hexdigest()}"


def file(path: str, text: str | bytes = "hello", **more: Any) -> dict[str, Any]:
    data = text.encode() if isinstance(text, str) else text
    return {"path": path, "mode": 0o644, "contents": {"source": data_urls.encode(data)}, **more}


def rendered(
    *,
    files: Sequence[dict[str, Any]] = (),
    units: Sequence[dict[str, Any]] = (),
    pool: str = "worker",
    kubeconfig: bytes = KUBECONFIG,
    config: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """The rendered MachineConfig of one MachineConfig with these files and units."""
    ignition = {
        "ignition": {"version": "3.5.0"},
        "storage": {"files": list(files)},
        "systemd": {"units": list(units)},
        **(config or {}),
    }
    document = {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": "50-test", "labels": {names.ROLE_LABEL: pool}},
        "spec": {"config": ignition, **spec},
    }
    return rendering.render(pool, [document], Credential(kubeconfig), "test")


def sealed(document: dict[str, Any]) -> dict[str, Any]:
    """The same under the name of what it has now: as if it had been rendered so."""
    piece = dataclasses.replace(merging.read(document), is_generated=False)
    configuration = rendering._digest(rendering._encoder.encode(merging.merge([piece])))
    metadata = document["metadata"]
    name = rendering._name("worker", configuration, metadata["annotations"][names.CREDENTIAL])
    return {**document, "metadata": {**metadata, "name": name}}


def answer(document: dict[str, Any], kubeconfig: bytes = KUBECONFIG, **more: Any) -> bytes:
    return served.answer(document, kubeconfig, CA, "3.5.0", **more)


def changed(body: bytes, **parts: Any) -> bytes:
    """The same answer with other parts at its top."""
    return json.dumps({**json.loads(body), **parts}).encode()
