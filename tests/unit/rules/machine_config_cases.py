# SPDX-License-Identifier: Apache-2.0
"""MachineConfigs, files and a credential, for the tests of whatever reads them. It tests nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from handfast import errors
from handfast.rules.machine_config import names

WORKER = "worker"
WHERE = "MachineConfig 50-x: spec.config"


@dataclass(frozen=True)
class Credential:
    """A bootstrap credential by its digest."""

    kind: str = names.CERTIFICATE
    digest: str = "sha256:" + "0" * 64


def ignition(version: str = "3.5.0", **sections: Any) -> dict[str, Any]:
    return {"ignition": {"version": version}, **sections}


def files(*rows: dict[str, Any], version: str = "3.5.0") -> dict[str, Any]:
    return ignition(version, storage={"files": list(rows)})


def units(*rows: dict[str, Any], version: str = "3.5.0") -> dict[str, Any]:
    return ignition(version, systemd={"units": list(rows)})


def file(path: str = "/etc/motd", source: str = "data:,hello", **fields: Any) -> dict[str, Any]:
    return {"path": path, "mode": 0o644, "contents": {"source": source}, **fields}


def machine_config(name: str = "50-x", config: Any = None, role: str = WORKER, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {names.ROLE_LABEL: role}},
        "spec": spec if config is None else {**spec, "config": config},
    }


def refusal(call: Any, *arguments: Any, **named: Any) -> errors.Refused:
    """What a call is refused with."""
    with pytest.raises(errors.Refused) as caught:
        call(*arguments, **named)
    return caught.value
