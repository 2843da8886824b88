# SPDX-License-Identifier: Apache-2.0
"""The table of kinds: one row for each resource the API serves.

Names come from the schema data file; what the file does not know (verbs, subresources, selectable fields, which
version is stored) is said here, once per kind. Behaviour is elsewhere: `defaulting`, `validation`, `printing` and the
server's strategies look a row up by its `resource`.

Served and stored group-versions are separate columns: `events.k8s.io/v1` Events are served beside the core ones and
stored as them, so both names show the same objects.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from handfast import errors
from handfast.api.schema import schema

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
READ_WRITE = ("get", "patch", "update")
# Groups of nothing but questions.
REVIEW_GROUPS = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
# The body of a request for a kind whose honest objects have a few KiB.
SMALL_BODY = 64 << 10


def _group_version(group: str, version: str) -> str:
    return f"{group}/{version}" if group else version


class Subresource(msgspec.Struct, frozen=True, kw_only=True):
    """A path below an object: what kind of document it takes and gives."""

    name: str
    kind: str
    group: str = ""
    version: str = ""
    verbs: tuple[str, ...] = READ_WRITE
    # As of the kind itself, below.
    body_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One served resource. `message` is its schema, or empty for a custom resource that brings `schema`."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    message: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    # Field-selector path -> path in the stored document (`objects.field_text` reads it). metadata.name and metadata.namespace are
    # always there.
    selectable: Mapping[str, str] = field(default_factory=dict)
    # The group-version objects are stored as; empty: the served one.
    stored_group: str = ""
    stored_version: str = ""
    # PUT of a missing object creates it (leases, roles and bindings do so in Kubernetes).
    create_on_update: bool = False
    # PUT without a resourceVersion is refused (custom resources, CSRs' status and others never allow it).
    needs_resource_version: bool = False
    # `metadata.generation` counts changes of everything but metadata and status.
    has_generation: bool = False
    # How long the body of a request may be; 0: as long as any. An object may take twice as much in the store.
    body_bytes: int = 0
    # Custom resources only: the structural schema, verbatim, and the printer columns of the definition.
    schema: Mapping[str, Any] | None = None
    columns: tuple[Mapping[str, Any], ...] = ()
    # What every answer warns of; empty: nothing.
    deprecation: str = ""
    # Their list kind where it is not the kind and "List".
    listed_as: str = ""
    # Where /scale finds the wanted replicas, the actual ones, and the selector.
    scale_paths: tuple[str, str, str] = ("", "", "")

    # Derived once, because every request asks for them.
    # What tables of behaviour are keyed by.
    resource: tuple[str, str] = field(init=False)
    api_version: str = field(init=False)
    storage_api_version: str = field(init=False)
    # Where its objects lie in the store; two rows may share one.
    prefix: str = field(init=False)
    # The selectable fields in a form that can be a cache key.
    selectable_items: tuple[tuple[str, str], ...] = field(init=False)

    def __post_init__(self) -> None:
        group = self.stored_group if self.stored_version else self.group
        for name, value in (
            ("resource", (self.group, self.plural)),
            ("api_version", _group_version(self.group, self.version)),
            ("storage_api_version", _group_version(group, self.stored_version or self.version)),
            ("prefix", f"{group or 'core'}/{self.plural}/"),
            ("selectable_items", tuple(self.selectable.items())),
        ):
            object.__setattr__(self, name, value)

    @property
    def list_kind(self) -> str:
        return self.listed_as or self.kind + "List"

    def key(self, namespace: str, name: str) -> str:
        return f"{self.prefix}{namespace}/{name}" if self.namespaced else self.prefix + name

    @property
    def is_computed(self) -> bool:
        """Whether its objects are made when they are read, and stored by nobody."""
        return self.verbs == _READ

    def subresource(self, name: str) -> Subresource | None:
        return next((row for row in self.subresources if row.name == name), None)

    def largest_body(self, subresource: str = "") -> tuple[int, str]:
        """How long a body of this kind, or for that subresource, may be, and the kind it is of; (0, "") for any length."""
        row = self.subresource(subresource) if subresource else None
        if row is not None and row.body_bytes:
            return row.body_bytes, row.kind
        return (self.body_bytes, self.kind) if self.body_bytes else (0, "")


_STATUS = "status"
_SCALE = Subresource(name="scale", kind="Scale", group="autoscaling", version="v1", body_bytes=SMALL_BODY)
_PODS = {
    "spec.nodeName": "spec.nodeName",
    "spec.restartPolicy": "spec.restartPolicy",
    "spec.schedulerName": "spec.schedulerName",
    "spec.serviceAccountName": "spec.serviceAccountName",
    "spec.hostNetwork": "spec.hostNetwork?false",
    "status.phase": "status.phase",
    "status.podIP": "status.podIP",
    "status.nominatedNodeName": "status.nominatedNodeName",
}
_EVENTS = {
    **{
        f"involvedObject.{name}": f"involvedObject.{name}"
        for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    },
    "reason": "reason",
    "reportingComponent": "reportingComponent",
    "source": "source.component|reportingComponent",
    "type": "type",
}
_NEW_EVENTS = {
    **{
        f"regarding.{name}": f"involvedObject.{name}"
        for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    },
    "reason": "reason",
    "reportingController": "reportingComponent",
    "type": "type",
}
_CREATE = ("create",)
_READ = ("get", "list")

# (group, plural) -> what the schema file does not say. A resource that is not here is not served.
_MORE: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("", "namespaces"): {
        "status": True,
        "subresources": (Subresource(name="finalize", kind="Namespace", verbs=("update",)),),
        "verbs": tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
        "selectable": {"status.phase": "status.phase"},
    },
    ("", "secrets"): {"selectable": {"type": "type"}},
    ("", "configmaps"): {},
    ("", "serviceaccounts"): {
        "subresources": (
            Subresource(
                name="token",
                kind="TokenRequest",
                group="authentication.k8s.io",
                version="v1",
                verbs=_CREATE,
                body_bytes=SMALL_BODY,
            ),
        ),
    },
    ("", "nodes"): {"status": True, "selectable": {"spec.unschedulable": "spec.unschedulable?false"}},
    ("", "pods"): {
        "status": True,
        "generation": True,
        "selectable": _PODS,
        "subresources": (
            Subresource(name="binding", kind="Binding", verbs=_CREATE, body_bytes=SMALL_BODY),
            Subresource(
                name="eviction", kind="Eviction", group="policy", version="v1", verbs=_CREATE, body_bytes=SMALL_BODY
            ),
        ),
    },
    ("", "services"): {
        "status": True,
        "selectable": {"spec.clusterIP": "spec.clusterIP", "spec.type": "spec.type"},
    },
    ("", "endpoints"): {
        "create_on_update": True,
        "deprecation": "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
    },
    ("", "events"): {"create_on_update": True, "selectable": _EVENTS, "body_bytes": SMALL_BODY},
    ("", "persistentvolumes"): {"status": True},
    ("", "persistentvolumeclaims"): {"status": True},
    ("", "replicationcontrollers"): {
        "status": True,
        "generation": True,
        "subresources": (_SCALE,),
        "selectable": {"status.replicas": "status.replicas?0"},
    },
    ("", "podtemplates"): {"generation": True},
    ("", "resourcequotas"): {"status": True},
    ("", "limitranges"): {},
    ("", "componentstatuses"): {"verbs": _READ},
    ("apiregistration.k8s.io", "apiservices"): {"verbs": _READ},
    ("flowcontrol.apiserver.k8s.io", "flowschemas"): {"verbs": _READ},
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"): {"verbs": _READ},
    ("discovery.k8s.io", "endpointslices"): {"generation": True, "create_on_update": True},
    ("events.k8s.io", "events"): {
        "create_on_update": True,
        "selectable": _NEW_EVENTS,
        "stored_group": "",
        "stored_version": "v1",
        "body_bytes": SMALL_BODY,
    },
    ("coordination.k8s.io", "leases"): {"create_on_update": True, "body_bytes": SMALL_BODY},
    ("certificates.k8s.io", "certificatesigningrequests"): {
        "status": True,
        "subresources": (Subresource(name="approval", kind="CertificateSigningRequest"),),
        "selectable": {"spec.signerName": "spec.signerName"},
        "body_bytes": SMALL_BODY,
    },
    ("rbac.authorization.k8s.io", "roles"): {"create_on_update": True},
    ("rbac.authorization.k8s.io", "clusterroles"): {"create_on_update": True},
    ("rbac.authorization.k8s.io", "rolebindings"): {"create_on_update": True},
    ("rbac.authorization.k8s.io", "clusterrolebindings"): {"create_on_update": True},
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): {"generation": True},
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): {"generation": True},
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"): {"generation": True},
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"): {"generation": True},
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): {"generation": True, "status": True},
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): {"generation": True},
    ("apiextensions.k8s.io", "customresourcedefinitions"): {"status": True, "generation": True},
    ("apps", "deployments"): {"status": True, "generation": True, "subresources": (_SCALE,)},
    ("apps", "daemonsets"): {"status": True, "generation": True},
    ("apps", "statefulsets"): {"status": True, "generation": True, "subresources": (_SCALE,)},
    ("apps", "replicasets"): {
        "status": True,
        "generation": True,
        "subresources": (_SCALE,),
        "selectable": {"status.replicas": "status.replicas?0"},
    },
    ("apps", "controllerrevisions"): {},
    ("autoscaling", "horizontalpodautoscalers"): {"status": True, "served_versions": ("v2", "v1")},
    ("batch", "jobs"): {
        "status": True,
        "generation": True,
        "selectable": {"status.successful": "status.succeeded?0"},
    },
    ("batch", "cronjobs"): {"status": True, "generation": True},
    ("networking.k8s.io", "ingresses"): {"status": True, "generation": True},
    ("networking.k8s.io", "ingressclasses"): {"generation": True},
    ("networking.k8s.io", "networkpolicies"): {"generation": True},
    ("networking.k8s.io", "ipaddresses"): {},
    ("networking.k8s.io", "servicecidrs"): {"status": True},
    ("policy", "poddisruptionbudgets"): {"status": True, "generation": True},
    ("scheduling.k8s.io", "priorityclasses"): {"generation": True},
    ("storage.k8s.io", "csistoragecapacities"): {},
    ("storage.k8s.io", "volumeattributesclasses"): {},
    ("storage.k8s.io", "csinodes"): {},
    ("storage.k8s.io", "volumeattachments"): {"status": True},
    ("storage.k8s.io", "csidrivers"): {},
    ("storage.k8s.io", "storageclasses"): {},
    ("node.k8s.io", "runtimeclasses"): {"create_on_update": True},
    ("authentication.k8s.io", "tokenreviews"): {"verbs": _CREATE, "body_bytes": SMALL_BODY},
    ("authentication.k8s.io", "selfsubjectreviews"): {"verbs": _CREATE, "body_bytes": SMALL_BODY},
    ("authorization.k8s.io", "subjectaccessreviews"): {"verbs": _CREATE, "body_bytes": SMALL_BODY},
    ("authorization.k8s.io", "selfsubjectaccessreviews"): {"verbs": _CREATE, "body_bytes": SMALL_BODY},
    ("authorization.k8s.io", "localsubjectaccessreviews"): {"verbs": _CREATE, "body_bytes": SMALL_BODY},
    ("authorization.k8s.io", "selfsubjectrulesreviews"): {"verbs": _CREATE, "body_bytes": SMALL_BODY},
}


def _row(data: Mapping[str, Any], more: Mapping[str, Any]) -> Kind:
    subresources = tuple(more.get("subresources", ()))
    if more.get(_STATUS):
        subresources = (Subresource(name=_STATUS, kind=data["kind"]), *subresources)
    return Kind(
        group=data["group"],
        version=data["version"],
        kind=data["kind"],
        plural=data["plural"],
        singular=data["singular"],
        namespaced=data["namespaced"],
        message=data["message"],
        short_names=tuple(data.get("shortNames", ())),
        categories=tuple(data.get("categories", ())),
        verbs=more.get("verbs", ALL_VERBS),
        subresources=subresources,
        selectable=more.get("selectable", {}),
        stored_group=more.get("stored_group", ""),
        stored_version=more.get("stored_version", ""),
        create_on_update=more.get("create_on_update", False),
        has_generation=more.get("generation", False),
        body_bytes=more.get("body_bytes", 0),
        deprecation=more.get("deprecation", ""),
    )


@functools.cache
def builtin() -> tuple[Kind, ...]:
    """Every built-in row, in discovery order."""
    rows = []
    for data in schema.kind_rows():
        more = _MORE.get((data["group"], data.get("plural", "")))
        # Of most that come in several versions only v1 is served. The first of several is the one that is stored.
        versions: tuple[str, ...] = ("v1",) if more is None else more.get("served_versions", ("v1",))
        if more is not None and data["version"] in versions:
            stored = (
                {} if data["version"] == versions[0] else {"stored_group": data["group"], "stored_version": versions[0]}
            )
            rows.append(_row(data, {**more, **stored}))
    return tuple(rows)


def row(plural: str, group: str = "") -> Kind:
    """The built-in row of a resource; asking for one that is not there is the caller's mistake."""
    for each in builtin():
        if each.resource == (group, plural):
            return each
    raise errors.Misuse(f'no row of the table has the resource "{plural}" of the group "{group}"')


def _place(row: Kind) -> tuple[str, str, str]:
    return (row.group, row.version, row.plural)


def stored_row(kind: Kind) -> Kind:
    """The row whose form the objects of `kind` are stored in: itself, for nearly all and for every custom resource."""
    if not kind.stored_version or not kind.message:
        return kind
    return next(row for row in builtin() if row.api_version == kind.storage_api_version and row.plural == kind.plural)


class Table:
    """Rows by where they are asked for; custom resources add and remove rows while the server runs.

    The rows it was made with stay: they carry checks and strategies that a custom row of the same name has not.
    """

    def __init__(self, rows: Iterable[Kind] = ()) -> None:
        self._rows: dict[tuple[str, str, str], Kind] = {_place(row): row for row in rows}
        self._fixed = frozenset(row.resource for row in self._rows.values())

    def add(self, row: Kind) -> None:
        self._require_free(row)
        self._rows[_place(row)] = row

    def remove(self, row: Kind) -> None:
        self._require_free(row)
        self._rows.pop(_place(row), None)

    def _require_free(self, row: Kind) -> None:
        if row.resource in self._fixed:
            name = f"{row.plural}.{row.group}" if row.group else row.plural
            raise errors.Misuse(f"{name} is built in: no other row can take its place")

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self._rows.get((group, version, plural))

    def __iter__(self) -> Iterator[Kind]:
        return iter(tuple(self._rows.values()))
