# SPDX-License-Identifier: Apache-2.0
"""What schemas are called in OpenAPI documents, and how one refers to another.

The names are those of Kubernetes, so that clients which know them find them. It makes no schema.
"""

from __future__ import annotations

from typing import Any, Final

from handfast.api import kinds

# Package of the schema data file -> package in the names of components; the rest is io.k8s.api.<package>.
_PACKAGES: Final = {
    "meta.v1": "io.k8s.apimachinery.pkg.apis.meta.v1",
    "intstr": "io.k8s.apimachinery.pkg.util.intstr",
    "resource": "io.k8s.apimachinery.pkg.api.resource",
    "runtime": "io.k8s.apimachinery.pkg.runtime",
    "apiextensions.v1": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
}
PATCH: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch"


def of_message(message: str) -> str:
    """`core.v1.Pod` is io.k8s.api.core.v1.Pod."""
    package, _, name = message.rpartition(".")
    return f"{_PACKAGES.get(package, 'io.k8s.api.' + package)}.{name}"


def of_kind(row: kinds.Kind) -> str:
    """The name of a kind; a custom resource's begins with its group reversed."""
    return of_message(row.message) if row.message else _custom(row, row.kind)


def of_list(row: kinds.Kind) -> str:
    """The name of the lists of a kind."""
    return of_message(row.message) + "List" if row.message else _custom(row, row.list_kind)


def _custom(row: kinds.Kind, kind: str) -> str:
    return ".".join([*reversed(row.group.split(".")), row.version, kind])


def reference(name: str) -> dict[str, Any]:
    """A reference in OpenAPI 3; in an `allOf`, because what stands beside a bare $ref does not count."""
    return {"allOf": [{"$ref": f"#/components/schemas/{name}"}]}


def reference_v2(name: str) -> dict[str, Any]:
    """A reference in OpenAPI 2."""
    return {"$ref": f"#/definitions/{name}"}
