# SPDX-License-Identifier: Apache-2.0
"""The metadata of an object as typed views of objects have it. What a server makes of metadata is in `objects`."""

from __future__ import annotations

import msgspec

Key = tuple[str, str]


class Meta(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The metadata nearly everyone needs."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None

    @property
    def key(self) -> Key:
        """Namespace and name; the namespace of a cluster-scoped object is empty."""
        return (self.namespace, self.name)
