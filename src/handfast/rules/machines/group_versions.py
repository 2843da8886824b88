# SPDX-License-Identifier: Apache-2.0
"""Which kinds of Machine are followed, as an operator names them: `GROUP` or `GROUP/VERSION`.

It follows none.

1. The group is machine.openshift.io or cluster.x-k8s.io, and each is named once at most.
2. The version is one that can be read here. Without one it is the version that the server prefers.
3. Nothing named is machine.openshift.io alone. Cluster API's Machines have to be asked for: on a management cluster they are the
   machines of other clusters, and nobody may join this one by them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from handfast import errors
from handfast.rules.machines import inventory

# 2. what can be read, the newest first
VERSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    inventory.OPENSHIFT: ("v1beta1",),
    inventory.CLUSTER_API: ("v1beta2", "v1beta1"),
}
PLURAL: Final = "machines"


class GroupVersions(msgspec.Struct, frozen=True):
    """A group, and which of its versions may be followed: one of them will be."""

    group: str
    versions: tuple[str, ...]


DEFAULT: Final = (GroupVersions(inventory.OPENSHIFT, VERSIONS[inventory.OPENSHIFT]),)


def parse(texts: Sequence[str]) -> tuple[GroupVersions, ...]:
    """The kinds that these words name; `DEFAULT` where there are none (3)."""
    rows = tuple(_one(text) for text in texts)
    groups = [row.group for row in rows]
    for group in groups:
        if groups.count(group) > 1:
            raise _refused(f"{group} is named more than once", "name each group once")
    return rows or DEFAULT


def _one(text: str) -> GroupVersions:
    group, slash, version = text.partition("/")
    # 1. a group that there are Machines of
    if group not in VERSIONS:
        raise _refused(f"{text!r}: there are no Machines of {group!r}", f"write one of {', '.join(VERSIONS)}")
    versions = VERSIONS[group]
    # 2. a version that can be read
    if slash and version not in versions:
        hint = f"write {group}, or one of {', '.join(f'{group}/{each}' for each in versions)}"
        raise _refused(f"{text!r}: the version {version!r} cannot be read", hint)
    return GroupVersions(group, (version,) if slash else versions)


def _refused(message: str, hint: str) -> errors.Refused:
    return errors.Refused(message, reason="BadGroupVersion", hint=hint)
