# SPDX-License-Identifier: Apache-2.0
"""The columns of each built-in kind's Table: their names, types and whether they show by default.

This is data; what stands in the cells is decided in `printing.core`, `printing.pods`, `printing.workloads` and
`printing.access`, in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


class Column(msgspec.Struct, frozen=True):
    """One column; `priority` 1 shows with `-o wide` only."""

    name: str
    description: str
    type: str = "string"
    format: str = ""
    priority: int = 0

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


def _wide(name: str, description: str, kind: str = "string") -> Column:
    return Column(name, description, kind, priority=1)


def _count(name: str, description: str) -> Column:
    return Column(name, description, "integer")


NAME = Column("Name", "Name of the object, unique in its namespace and kind.", format="name")
AGE = Column("Age", "Time since the object was created.")
CREATED_AT = Column("Created At", "When the object was created.", "date")
_CONTAINERS = (
    _wide("Containers", "Names of the containers of the template."),
    _wide("Images", "Images of the containers of the template."),
)
_SELECTOR = _wide("Selector", "Labels that select the pods.")
_REPLICAS = (
    NAME,
    _count("Desired", "Number of pods asked for."),
    _count("Current", "Number of pods that exist."),
    _count("Ready", "Number of pods that are ready."),
    AGE,
    *_CONTAINERS,
    _SELECTOR,
)
SCALE = (
    NAME,
    _count("Desired", "Number of pods asked for."),
    _count("Available", "Number of pods that exist."),
    AGE,
)
_BINDING = (
    NAME,
    Column("Role", "Role that is granted."),
    AGE,
    _wide("Users", "Users it is granted to."),
    _wide("Groups", "Groups it is granted to."),
    _wide("ServiceAccounts", "Service accounts it is granted to."),
)
_POLICY_BINDING = (
    NAME,
    Column("PolicyName", "Policy that is bound."),
    Column("ParamRef", "Params that the policy is evaluated with."),
    AGE,
)
_WEBHOOKS = (NAME, _count("Webhooks", "Number of webhooks of the configuration."), AGE)
_EVENT = (
    Column("Last Seen", "Time since the event was last seen."),
    Column("Type", "Normal or Warning."),
    Column("Reason", "Short machine-readable reason."),
    Column("Object", "Object the event is about."),
    _wide("Subobject", "Part of the object the event is about."),
    _wide("Source", "Component that reported the event."),
    Column("Message", "What happened."),
    _wide("First Seen", "Time since the event was first seen."),
    _wide("Count", "How often it was seen.", "integer"),
    Column("Name", "Name of the event.", format="name", priority=1),
)
_CLASS = Column("StorageClass", "Storage class of the volume.")
_ATTRIBUTES = Column("VolumeAttributesClass", "Volume attributes class of the volume.")
_MODE = _wide("VolumeMode", "Filesystem or Block.")
_CAPACITY = Column("Capacity", "Size of the volume.")
_ACCESS = Column("Access Modes", "How the volume can be mounted.")
FALLBACK = (NAME, CREATED_AT)

COLUMNS: Mapping[tuple[str, str], tuple[Column, ...]] = {
    ("", "namespaces"): (NAME, Column("Status", "Phase of the namespace."), AGE),
    ("", "secrets"): (NAME, Column("Type", "Type of the secret."), _count("Data", "Number of keys."), AGE),
    ("", "configmaps"): (NAME, _count("Data", "Number of keys."), AGE),
    ("", "serviceaccounts"): (NAME, AGE),
    ("", "nodes"): (
        NAME,
        Column("Status", "Whether the node is ready and schedulable."),
        Column("Roles", "Roles of the node, from its labels."),
        AGE,
        Column("Version", "Version of the kubelet."),
        _wide("Internal-IP", "First internal address."),
        _wide("External-IP", "First external address."),
        _wide("OS-Image", "Operating system."),
        _wide("Kernel-Version", "Version of the kernel."),
        _wide("Container-Runtime", "Container runtime and its version."),
    ),
    ("", "pods"): (
        NAME,
        Column("Ready", "Ready containers of all containers."),
        Column("Status", "Phase of the pod, or why it is not running."),
        Column("Restarts", "Restarts of its containers, and the time since the last."),
        AGE,
        _wide("IP", "Address of the pod."),
        _wide("Node", "Node the pod runs on."),
        _wide("Nominated Node", "Node the pod is to be moved to."),
        _wide("Readiness Gates", "Fulfilled readiness gates of all gates."),
    ),
    ("", "services"): (
        NAME,
        Column("Type", "How the service is exposed."),
        Column("Cluster-IP", "Virtual address inside the cluster."),
        Column("External-IP", "Addresses or name outside the cluster."),
        Column("Port(s)", "Ports, node ports and protocols."),
        AGE,
        _SELECTOR,
    ),
    ("", "endpoints"): (NAME, Column("Endpoints", "First addresses and ports."), AGE),
    ("", "events"): _EVENT,
    ("events.k8s.io", "events"): _EVENT,
    ("", "persistentvolumes"): (
        NAME,
        _CAPACITY,
        _ACCESS,
        Column("Reclaim Policy", "What becomes of the volume after its claim."),
        Column("Status", "Phase of the volume."),
        Column("Claim", "Claim the volume is bound to."),
        _CLASS,
        _ATTRIBUTES,
        Column("Reason", "Why the volume is in this phase."),
        AGE,
        _MODE,
    ),
    ("", "persistentvolumeclaims"): (
        NAME,
        Column("Status", "Phase of the claim."),
        Column("Volume", "Volume the claim is bound to."),
        _CAPACITY,
        _ACCESS,
        _CLASS,
        _ATTRIBUTES,
        AGE,
        _MODE,
    ),
    ("", "replicationcontrollers"): _REPLICAS,
    ("apps", "replicasets"): _REPLICAS,
    ("apps", "deployments"): (
        NAME,
        Column("Ready", "Ready pods of the pods asked for."),
        _count("Up-to-date", "Number of pods with the current template."),
        _count("Available", "Number of pods ready for long enough."),
        AGE,
        *_CONTAINERS,
        _SELECTOR,
    ),
    ("apps", "daemonsets"): (
        NAME,
        _count("Desired", "Number of nodes that should run the pod."),
        _count("Current", "Number of nodes that run the pod."),
        _count("Ready", "Number of pods that are ready."),
        _count("Up-to-date", "Number of pods with the current template."),
        _count("Available", "Number of pods ready for long enough."),
        Column("Node Selector", "Labels of the nodes it is meant for."),
        AGE,
        *_CONTAINERS,
        _SELECTOR,
    ),
    ("apps", "statefulsets"): (NAME, Column("Ready", "Ready pods of the pods asked for."), AGE, *_CONTAINERS),
    ("batch", "jobs"): (
        NAME,
        Column("Status", "Whether the job runs, completed or failed."),
        Column("Completions", "Succeeded pods of the pods wanted."),
        Column("Duration", "Time the job took so far."),
        AGE,
        *_CONTAINERS,
        _SELECTOR,
    ),
    ("batch", "cronjobs"): (
        NAME,
        Column("Schedule", "When jobs are started, in cron form."),
        Column("Timezone", "Time zone of the schedule."),
        Column("Suspend", "Whether no jobs are started for now."),
        _count("Active", "Number of running jobs."),
        Column("Last Schedule", "Time since a job was last started."),
        AGE,
        *_CONTAINERS,
        _SELECTOR,
    ),
    ("discovery.k8s.io", "endpointslices"): (
        NAME,
        Column("AddressType", "IPv4, IPv6 or FQDN."),
        Column("Ports", "First ports."),
        Column("Endpoints", "First addresses."),
        AGE,
    ),
    ("coordination.k8s.io", "leases"): (NAME, Column("Holder", "Who holds the lease."), AGE),
    ("certificates.k8s.io", "certificatesigningrequests"): (
        NAME,
        AGE,
        Column("SignerName", "Signer that is asked."),
        Column("Requestor", "User that asked."),
        Column("RequestedDuration", "Lifetime asked for."),
        Column("Condition", "Whether it is pending, approved or denied, and whether it was issued."),
    ),
    ("rbac.authorization.k8s.io", "roles"): FALLBACK,
    ("rbac.authorization.k8s.io", "clusterroles"): FALLBACK,
    ("rbac.authorization.k8s.io", "rolebindings"): _BINDING,
    ("rbac.authorization.k8s.io", "clusterrolebindings"): _BINDING,
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): _WEBHOOKS,
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): _WEBHOOKS,
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): (
        NAME,
        _count("Validations", "Number of validations of the policy."),
        Column("ParamKind", "Kind of the params of the policy."),
        AGE,
    ),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): _POLICY_BINDING,
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"): (
        NAME,
        _count("Mutations", "Number of mutations of the policy."),
        Column("ParamKind", "Kind of the params of the policy."),
        AGE,
    ),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"): _POLICY_BINDING,
    ("apiextensions.k8s.io", "customresourcedefinitions"): FALLBACK,
    ("storage.k8s.io", "csinodes"): (NAME, _count("Drivers", "Number of drivers on the node."), AGE),
    ("storage.k8s.io", "volumeattachments"): (
        NAME,
        Column("Attacher", "Driver that attaches the volume."),
        Column("PV", "Volume that is attached."),
        Column("Node", "Node it is attached to."),
        Column("Attached", "Whether it is attached by now.", "boolean"),
        AGE,
    ),
    ("storage.k8s.io", "csidrivers"): (
        NAME,
        Column("AttachRequired", "Whether volumes have to be attached.", "boolean"),
        Column("PodInfoOnMount", "Whether mounts are told of the pod.", "boolean"),
        Column("StorageCapacity", "Whether capacity is considered in scheduling.", "boolean"),
        Column("TokenRequests", "Audiences of the tokens the driver gets."),
        Column("RequiresRepublish", "Whether volumes are published again and again.", "boolean"),
        Column("Modes", "Lifecycle modes of its volumes."),
        AGE,
    ),
    ("storage.k8s.io", "storageclasses"): (
        NAME,
        Column("Provisioner", "Driver that makes the volumes."),
        Column("ReclaimPolicy", "What becomes of a volume after its claim."),
        Column("VolumeBindingMode", "When a volume is made and bound."),
        Column("AllowVolumeExpansion", "Whether volumes can grow.", "boolean"),
        AGE,
    ),
    ("", "podtemplates"): (
        NAME,
        Column("Containers", "Names of the containers of the template."),
        Column("Images", "Images of the containers of the template."),
        Column("Pod Labels", "Labels of the template."),
    ),
    ("", "resourcequotas"): (
        NAME,
        Column("Request", "What is used of each limit."),
        Column("Limit", "What is used of the limits on limits."),
        AGE,
    ),
    ("", "limitranges"): FALLBACK,
    ("", "componentstatuses"): (
        NAME,
        Column("Status", "Whether the component is healthy."),
        Column("Message", "What it says of itself."),
        Column("Error", "What is wrong with it."),
    ),
    ("apiregistration.k8s.io", "apiservices"): (
        NAME,
        Column("Service", "Who serves this group-version."),
        Column("Available", "Whether it is served."),
        AGE,
    ),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"): (
        NAME,
        Column("PriorityLevel", "Budget of these requests."),
        Column("MatchingPrecedence", "Place in the order in which they are asked."),
        Column("DistinguisherMethod", "By what a budget is counted."),
        AGE,
        Column("MissingPL", "Whether the budget does not exist."),
    ),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"): (
        NAME,
        Column("Type", "Whether requests are limited."),
        Column("NominalConcurrencyShares", "Shares of concurrent requests, which are not used."),
        Column("Queues", "Queues, of which there are none."),
        Column("HandSize", "Queues of a flow, of which there are none."),
        Column("QueueLengthLimit", "Length of a queue."),
        AGE,
    ),
    ("apps", "controllerrevisions"): (
        NAME,
        Column("Controller", "What the revision is of."),
        Column("Revision", "Number of the revision."),
        AGE,
    ),
    ("autoscaling", "horizontalpodautoscalers"): (
        NAME,
        Column("Reference", "What is scaled."),
        Column("Targets", "Metrics as they are and as they should be."),
        Column("MinPods", "Fewest pods."),
        Column("MaxPods", "Most pods."),
        Column("Replicas", "Pods that there are."),
        AGE,
    ),
    ("networking.k8s.io", "ingresses"): (
        NAME,
        Column("Class", "Class of the ingress."),
        Column("Hosts", "First hosts of the rules."),
        Column("Address", "Addresses of the load balancer."),
        Column("Ports", "80, and 443 with TLS."),
        AGE,
    ),
    ("networking.k8s.io", "ingressclasses"): (
        NAME,
        Column("Controller", "Controller of this class."),
        Column("Parameters", "Object with more parameters."),
        AGE,
    ),
    # The age of an address has a cell and no column in Kubernetes, and so kubectl does not show it.
    ("networking.k8s.io", "ipaddresses"): (NAME, Column("ParentRef", "What the address is given to.")),
    ("networking.k8s.io", "servicecidrs"): (NAME, Column("CIDRs", "Ranges of addresses."), AGE),
    ("networking.k8s.io", "networkpolicies"): (NAME, Column("Pod-Selector", "Pods it is for."), AGE),
    ("policy", "poddisruptionbudgets"): (
        NAME,
        Column("Min Available", "Pods that have to stay available."),
        Column("Max Unavailable", "Pods that may be unavailable."),
        _count("Allowed Disruptions", "Pods that may be evicted now."),
        AGE,
    ),
    ("scheduling.k8s.io", "priorityclasses"): (
        NAME,
        _count("Value", "Priority of the pods."),
        Column("Global-Default", "Whether pods without a class have this one.", "boolean"),
        AGE,
        Column("PreemptionPolicy", "Whether pods of the class displace others."),
    ),
    ("storage.k8s.io", "csistoragecapacities"): (
        NAME,
        Column("StorageClassName", "Storage class the capacity is of."),
        Column("Capacity", "What is left."),
    ),
    ("storage.k8s.io", "volumeattributesclasses"): (NAME, Column("DriverName", "Driver of the class."), AGE),
    ("node.k8s.io", "runtimeclasses"): (NAME, Column("Handler", "Handler of the container runtime."), AGE),
}
