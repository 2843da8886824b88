# SPDX-License-Identifier: Apache-2.0
"""Admission: Pods get their priority and their tolerations. `rules.pod_scheduling` says which; this looks the classes up.

All classes are looked through for the default one when one of them has changed, and not for each Pod.
"""

from __future__ import annotations

from handfast.api import objects
from handfast.apiserver.admission import plugin
from handfast.rules import pod_scheduling

_CLASSES = "scheduling.k8s.io/priorityclasses/"
_PODS = frozenset({("", "pods")})
_WRITES = frozenset({plugin.CREATE, plugin.UPDATE})


class Priorities:
    """The rows that have to do with PriorityClasses."""

    def __init__(self) -> None:
        self._seen = -1
        self._default: objects.Document | None = None
        self.pods = plugin.Row("Priority", _WRITES, self.fill_in, _PODS, changes=True)
        self.classes = plugin.Row(
            "Priority", _WRITES, self.admit_class, frozenset({("scheduling.k8s.io", "priorityclasses")})
        )

    def fill_in(self, write: plugin.Write, context: plugin.Context) -> None:
        """Give a new Pod the priority of its class, or refuse it; let another keep its own."""
        pod = write.document
        if write.subresource or pod is None:
            return
        if write.old is not None:
            pod_scheduling.keep(pod, write.old)
            return
        name = pod_scheduling.named(pod)
        chosen = context.find(_CLASSES, "", name) if name else self._default_class(context)
        if name and chosen is None:
            plugin.require(write, pod_scheduling.absent(name))
        plugin.require(write, pod_scheduling.prioritize(pod, chosen))

    def admit_class(self, write: plugin.Write, context: plugin.Context) -> None:
        """Refuse a second default."""
        if write.document is not None:
            plugin.require(write, pod_scheduling.only_default(write.name, write.document, self._default_class(context)))

    def _default_class(self, context: plugin.Context) -> objects.Document | None:
        classes = context.replica.collection(_CLASSES)
        if self._seen != classes.changed:
            self._default = pod_scheduling.default_class(item.document() for item in classes.snapshot())
            self._seen = classes.changed
        return self._default


def tolerate(write: plugin.Write, _context: plugin.Context) -> None:
    """Give a Pod the tolerations that it is silent about."""
    if not write.subresource and write.document is not None:
        pod_scheduling.tolerate(write.document)


TOLERATIONS = plugin.Row("DefaultTolerationSeconds", _WRITES, tolerate, _PODS, changes=True)
