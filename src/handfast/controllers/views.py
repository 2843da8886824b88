# SPDX-License-Identifier: Apache-2.0
"""Views and sources that several controllers share, so that they share one watch.

What a single controller needs to see of a kind is declared in its own module.
"""

from __future__ import annotations

import msgspec

from handfast.api import resources, status
from handfast.bootstrap import cluster_info
from handfast.client import api, partial, watch


class _Spec(msgspec.Struct, frozen=True, gc=False):
    finalizers: tuple[str, ...] | None = None


class _Status(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


class Namespace(msgspec.Struct, frozen=True, gc=False):
    """A Namespace: is it in use?"""

    metadata: partial.Meta = partial.Meta()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None or self.status.phase == "Terminating"


ALL_NAMESPACES = watch.Source(resource=resources.NAMESPACES, view=Namespace)


class ConfigMap(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A ConfigMap with all its data: only for those that are followed one by one."""

    metadata: partial.Meta = partial.Meta()
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


CLUSTER_INFO = watch.Source(
    resource=resources.CONFIG_MAPS,
    view=ConfigMap,
    scope=api.Scope(namespace=cluster_info.NAMESPACE, field_selector=f"metadata.name={cluster_info.NAME}"),
)


def namespace_ends(error: status.StatusError) -> bool:
    """Whether a create was refused because its namespace is being deleted."""
    return error.reason == "Forbidden" and (
        any(cause.reason == "NamespaceTerminating" for cause in error.causes) or "is being terminated" in error.message
    )
