# SPDX-License-Identifier: Apache-2.0
"""The Machine of machine.openshift.io as a kind, and the definitions of all kinds of machine fleets.

Names, types and list types are OpenShift's, so that its objects and tools work on them; the descriptions are ours. They are
served as custom resources, by this server or another. What the objects bring about is elsewhere: `rules.machines`.

OpenShift's rules in CEL are left out. This server does not evaluate them, and it is the migration between Machine API and Cluster
API that they guard, which is not done here. A cluster that has OpenShift's own definitions needs none of these.
"""

from __future__ import annotations

from typing import Any, Final

from handfast.api import handfast_kinds, kinds
from handfast.api import kind_schemas as parts
from handfast.api import machine_config_kinds as configs

GROUP: Final = "machine.openshift.io"
# Where the Machines of a cluster are, unless somebody says otherwise.
NAMESPACE: Final = "openshift-machine-api"
ROLE_LABEL: Final = f"{GROUP}/cluster-api-machine-role"
ROLES: Final = configs.ROLES


def _hooks(about: str) -> dict[str, Any]:
    name = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
    rows = {
        "name": parts.text(
            "Name of the hook, with the domain of its owner in front.", minLength=3, maxLength=256, pattern=name
        ),
        "owner": parts.text("Who takes the hook away when the work is done.", minLength=3, maxLength=512),
    }
    return parts.keyed(about, "name", parts.structure("One hook.", rows, required=["name", "owner"]))


_OWNER: Final = {
    "apiVersion": parts.text("Version of the owner's API."),
    "blockOwnerDeletion": parts.truth("Whether the owner waits for this object's end before its own."),
    "controller": parts.truth("Whether the owner controls this object."),
    "kind": parts.text("Kind of the owner."),
    "name": parts.text("Name of the owner."),
    "uid": parts.text("UID of the owner."),
}
_NODE_METADATA: Final = {
    "annotations": parts.texts("Annotations of the Node."),
    "generateName": parts.text("Beginning of a name. It is kept and not used."),
    "labels": parts.texts("Labels of the Node."),
    "name": parts.text("Name. It is kept and not used."),
    "namespace": parts.text("Namespace. It is kept and not used."),
    "ownerReferences": parts.keyed(
        "Owners. They are kept and not used.",
        "uid",
        parts.structure("One owner.", _OWNER, required=["apiVersion", "kind", "name", "uid"], **parts.ATOMIC),
    ),
}
_TAINT: Final = {
    "effect": parts.text("What happens to Pods that do not tolerate it: NoSchedule, PreferNoSchedule or NoExecute."),
    "key": parts.text("Key of the taint."),
    "timeAdded": parts.instant("When a taint of effect NoExecute was added."),
    "value": parts.text("Value of the taint."),
}
_MACHINE_SPEC: Final = parts.structure(
    "What the machine is to be.",
    {
        "authoritativeAPI": parts.text(
            "Which Machine of this name is to count, where Cluster API has one as well: MachineAPI is this one, ClusterAPI "
            "is the other.",
            default="MachineAPI",
            enum=["MachineAPI", "ClusterAPI"],
        ),
        "lifecycleHooks": parts.structure(
            "What the end of the machine waits for.",
            {
                "preDrain": _hooks("What has to be done before the Node is drained."),
                "preTerminate": _hooks("What has to be done before the machine is terminated."),
            },
        ),
        "metadata": parts.structure("Labels and annotations that the Node of the machine is to have.", _NODE_METADATA),
        "providerID": parts.text(
            "What the provider calls the machine. A Node with the same spec.providerID is this machine's Node."
        ),
        "providerSpec": parts.structure(
            "How the provider makes the machine.", {"value": parts.anything("In the provider's own words.")}
        ),
        "taints": parts.atomic(
            "Taints that the Node is to have.", parts.structure("One taint.", _TAINT, required=["effect", "key"])
        ),
    },
)
_ADDRESS: Final = {
    "address": parts.text("The name or IP address."),
    "type": parts.text(
        "InternalDNS, ExternalDNS, Hostname, InternalIP or ExternalIP. The node's name has to be an InternalDNS of the "
        "machine for it to join."
    ),
}
_OPERATION: Final = {
    "description": parts.text("What was done."),
    "lastUpdated": parts.instant("When this was last written."),
    "state": parts.text("How far it is: Processing, Successful or Failed."),
    "type": parts.text("Create, Update or Delete."),
}
_MACHINE_STATUS: Final = parts.structure(
    "What the machine is, as far as it is known.",
    {
        "addresses": parts.atomic(
            "Names and IP addresses of the machine. Who may join as this machine, and which addresses its kubelet may "
            "serve, is decided by them.",
            parts.structure("One address.", _ADDRESS, required=["address", "type"]),
        ),
        "authoritativeAPI": parts.text(
            "Which Machine of this name counts now. While it is Migrating, this one counts as it was.",
            enum=["MachineAPI", "ClusterAPI", "Migrating"],
        ),
        "conditions": parts.keyed(
            "Conditions of the machine.",
            "type",
            parts.structure("One condition.", parts.CONDITION, required=["lastTransitionTime", "status", "type"]),
        ),
        "errorMessage": parts.text("What is wrong with the machine for good, in words."),
        "errorReason": parts.text("What is wrong with the machine for good, in one word."),
        "lastOperation": parts.structure("What the provider did last.", _OPERATION),
        "lastUpdated": parts.instant("When the status was last written."),
        "nodeRef": parts.structure(
            "The Node of the machine. A machine that has one is not joined again.", parts.REFERENCE, **parts.ATOMIC
        ),
        "phase": parts.text("Provisioning, Provisioned, Running, Deleting or Failed. A Failed machine is not joined."),
        "providerStatus": parts.anything("What the provider says of the machine, in its own words."),
        "synchronizedAPI": parts.text(
            "From which API the other Machine of this name was last written.", enum=["MachineAPI", "ClusterAPI"]
        ),
        "synchronizedGeneration": parts.whole(
            "Which generation of the authoritative Machine the other was last written from.", format="int64", minimum=0
        ),
    },
)
_MACHINE_COLUMNS: Final = (
    parts.column("Phase", ".status.phase", "How far the machine is."),
    parts.column(
        "Role", r".metadata.labels['machine\.openshift\.io/cluster-api-machine-role']", "What the machine is for."
    ),
    parts.column("Node", ".status.nodeRef.name", "The Node of the machine."),
    parts.column("Age", ".metadata.creationTimestamp", "Time since it was created.", kind="date"),
    parts.column("Address", '.status.addresses[?(@.type=="InternalDNS")].address', "The name it joins by.", priority=1),
    parts.column("ProviderID", ".spec.providerID", "What the provider calls it.", priority=1),
    parts.column("Type", r".metadata.labels['machine\.openshift\.io/instance-type']", "What is rented.", priority=1),
    parts.column("Region", r".metadata.labels['machine\.openshift\.io/region']", "Where it is.", priority=1),
    parts.column("Zone", r".metadata.labels['machine\.openshift\.io/zone']", "Where in the region it is.", priority=1),
    parts.column(
        "State",
        r".metadata.annotations['machine\.openshift\.io/instance-state']",
        "How the provider finds it.",
        priority=1,
    ),
)

MACHINE: Final = kinds.Kind(
    needs_resource_version=True,
    has_generation=True,
    group=GROUP,
    version="v1beta1",
    namespaced=True,
    kind="Machine",
    plural="machines",
    singular="machine",
    listed_as="MachineList",
    subresources=(kinds.Subresource(name="status", kind="Machine"),),
    schema=parts.document(
        "Machine",
        "Machine is one machine that the operator knows. A kubelet whose node has the machine's InternalDNS name may join "
        "with the bootstrap credential, once.",
        _MACHINE_SPEC,
        properties={"status": _MACHINE_STATUS},
    ),
    columns=_MACHINE_COLUMNS,
)


def rows() -> tuple[kinds.Kind, ...]:
    """Every kind, in an order in which its definitions can be applied."""
    return MACHINE, configs.MACHINE_CONFIG, configs.MACHINE_CONFIG_POOL


def definitions() -> list[dict[str, Any]]:
    """The CustomResourceDefinitions, in an order in which they can be applied."""
    return [handfast_kinds.definition(row) for row in rows()]
