# SPDX-License-Identifier: Apache-2.0
"""MachineConfig and MachineConfigPool as kinds, and the pools that a fleet begins with. `machine_kinds` says where they come from.

Nothing here renders a configuration.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from handfast.api import kind_schemas as parts
from handfast.api import kinds

GROUP: Final = "machineconfiguration.openshift.io"
MASTER: Final = "master"
WORKER: Final = "worker"
ROLES: Final = (MASTER, WORKER)
ROLE_LABEL: Final = f"{GROUP}/role"
NODE_ROLE_LABEL: Final = "node-role.kubernetes.io"

_CONFIG_SPEC: Final = parts.structure(
    "What the machines are to be configured with.",
    {
        "baseOSExtensionsContainerImage": parts.text("Image that the extensions come from."),
        "config": parts.anything("An Ignition configuration."),
        "extensions": parts.atomic("Extensions of the operating system to install.", parts.STRING),
        "fips": parts.truth("Whether FIPS mode is on."),
        "kernelArguments": parts.atomic("Arguments to add to the kernel's.", parts.STRING, nullable=True),
        "kernelType": parts.text("Which kernel: default, realtime or 64k-pages."),
        "osImageURL": parts.text("Image of the operating system."),
    },
)
_CONFIG_COLUMNS: Final = (
    parts.column(
        "GeneratedByController",
        r".metadata.annotations.machineconfiguration\.openshift\.io/generated-by-controller-version",
        "Which controller rendered it; empty: a person wrote it.",
    ),
    parts.column("IgnitionVersion", ".spec.config.ignition.version", "Version of the Ignition configuration."),
    parts.column("Age", ".metadata.creationTimestamp", "Time since it was created.", kind="date"),
)

_REQUIREMENT: Final = {
    "key": parts.text("Key of a label."),
    "operator": parts.text("In, NotIn, Exists or DoesNotExist."),
    "values": parts.atomic("Values to compare with.", parts.STRING),
}


def _selector(about: str) -> dict[str, Any]:
    one = parts.structure("One requirement.", _REQUIREMENT, required=["key", "operator"])
    rows = {
        "matchExpressions": parts.atomic("Requirements that labels have to meet, all of them.", one),
        "matchLabels": parts.texts("Labels that have to be there, with these values."),
    }
    return parts.structure(about, rows, **parts.ATOMIC)


def _configuration(about: str) -> dict[str, Any]:
    source = parts.atomic(
        "The MachineConfigs that it was rendered from.",
        parts.structure("One MachineConfig.", parts.REFERENCE, **parts.ATOMIC),
    )
    return parts.structure(about, {**parts.REFERENCE, "source": source}, **parts.ATOMIC)


_STREAM: Final = parts.structure(
    "Stream of images of the operating system.",
    {"name": parts.text("Name of the stream.", minLength=1, maxLength=253)},
    required=["name"],
)
_DOTTED: Final = (
    r"^([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]{0,61}[a-zA-Z0-9])"
    r"(\.([a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9\-]{0,61}[a-zA-Z0-9]))*$"
)
_POOL_SPEC: Final = parts.structure(
    "Which machines are in the pool, and what they are configured with.",
    {
        "configuration": _configuration("The rendered MachineConfig that the machines are to have."),
        "machineConfigSelector": _selector("Which MachineConfigs are rendered for the pool."),
        "maxUnavailable": {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "description": 'How many machines may be unavailable at once, as a number or as "50%". Absent: one.',
            "x-kubernetes-int-or-string": True,
        },
        "nodeSelector": _selector("Which Nodes are in the pool."),
        "osImageStream": _STREAM,
        "paused": parts.truth("Whether no machine of the pool is changed for now."),
        "pinnedImageSets": parts.keyed(
            "Sets of images to keep on the machines.",
            "name",
            parts.structure(
                "One set.",
                {"name": parts.text("Name of the set.", minLength=1, maxLength=253, pattern=_DOTTED)},
                required=["name"],
            ),
            maxItems=100,
        ),
    },
)
_COUNTS: Final = {
    "availableMachineCount": "Machines that are available.",
    "machineCount": "Machines in the pool.",
    "readyMachineCount": "Machines that are done and ready.",
    "unavailableMachineCount": "Machines that are not available.",
    "updatedMachineCount": "Machines that are done.",
}
_POOL_CONDITION: Final = parts.CONDITION | {"lastTransitionTime": parts.instant("When it last changed.", nullable=True)}
_SYNCHRONIZER: Final = {
    **{name: parts.whole(about, format="int64", minimum=0) for name, about in _COUNTS.items()},
    "observedGeneration": parts.whole("Of which generation this is told.", format="int64", minimum=0),
    "poolSynchronizerType": parts.text("What is brought to the machines.", enum=["PinnedImageSets"], maxLength=256),
}
_POOL_STATUS: Final = parts.structure(
    "How far the machines of the pool are.",
    {
        "certExpirys": parts.atomic(
            "When certificates on the machines expire.",
            parts.structure(
                "One certificate.",
                {
                    "bundle": parts.text("The bundle that it is in."),
                    "expiry": parts.instant("When it expires."),
                    "subject": parts.text("Whose it is."),
                },
                required=["bundle", "subject"],
            ),
        ),
        "conditions": parts.atomic(
            "Conditions of the pool: Updated, Updating, Degraded and others.",
            parts.structure("One condition.", {key: row for key, row in _POOL_CONDITION.items() if key != "severity"}),
        ),
        "configuration": _configuration("The rendered MachineConfig that all machines have."),
        "degradedMachineCount": parts.whole("Machines that could not be changed.", format="int32"),
        **{
            name: parts.whole(about, format="int32")
            for name, about in _COUNTS.items()
            if name != "availableMachineCount"
        },
        "observedGeneration": parts.whole("Of which generation this is told.", format="int64"),
        "osImageStream": _STREAM,
        "poolSynchronizersStatus": parts.keyed(
            "How far other things are brought to the machines.",
            "poolSynchronizerType",
            parts.structure("One of them.", _SYNCHRONIZER, required=[*_COUNTS, "poolSynchronizerType"]),
        ),
    },
)


def _pool_condition(kind: str, about: str) -> dict[str, Any]:
    return parts.column(kind, f'.status.conditions[?(@.type=="{kind}")].status', about)


_POOL_COLUMNS: Final = (
    parts.column("Config", ".status.configuration.name", "What all machines have."),
    _pool_condition("Updated", "Whether all machines are done."),
    _pool_condition("Updating", "Whether machines are being changed."),
    _pool_condition("Degraded", "Whether a machine could not be changed."),
    parts.column("MachineCount", ".status.machineCount", "Machines in the pool.", kind="number"),
    parts.column("ReadyMachineCount", ".status.readyMachineCount", "Machines that are ready.", kind="number"),
    parts.column("UpdatedMachineCount", ".status.updatedMachineCount", "Machines that are done.", kind="number"),
    parts.column("DegradedMachineCount", ".status.degradedMachineCount", "Machines in trouble.", kind="number"),
    parts.column("Age", ".metadata.creationTimestamp", "Time since it was created.", kind="date"),
)

_config_kind = functools.partial(
    kinds.Kind, group=GROUP, version="v1", namespaced=False, needs_resource_version=True, has_generation=True
)
MACHINE_CONFIG: Final = _config_kind(
    kind="MachineConfig",
    plural="machineconfigs",
    singular="machineconfig",
    short_names=("mc",),
    listed_as="MachineConfigList",
    schema=parts.document(
        "MachineConfig", "MachineConfig is a part of what machines are configured with.", _CONFIG_SPEC
    ),
    columns=_CONFIG_COLUMNS,
)
MACHINE_CONFIG_POOL: Final = _config_kind(
    kind="MachineConfigPool",
    plural="machineconfigpools",
    singular="machineconfigpool",
    short_names=("mcp",),
    listed_as="MachineConfigPoolList",
    subresources=(kinds.Subresource(name="status", kind="MachineConfigPool"),),
    schema=parts.document(
        "MachineConfigPool",
        "MachineConfigPool is a set of machines that are configured alike.",
        _POOL_SPEC,
        required=["spec"],
        properties={"status": _POOL_STATUS},
    ),
    columns=_POOL_COLUMNS,
)


def pool(role: str) -> dict[str, Any]:
    """The MachineConfigPool of a role: its Nodes by their role label, its MachineConfigs by theirs."""
    return {
        "apiVersion": MACHINE_CONFIG_POOL.api_version,
        "kind": MACHINE_CONFIG_POOL.kind,
        "metadata": {"name": role, "labels": {f"pools.operator.machineconfiguration.openshift.io/{role}": ""}},
        "spec": {
            "machineConfigSelector": {"matchLabels": {ROLE_LABEL: role}},
            "nodeSelector": {"matchLabels": {f"{NODE_ROLE_LABEL}/{role}": ""}},
            "paused": False,
        },
    }
