# SPDX-License-Identifier: Apache-2.0
"""Admission: a new Pod gets what its RuntimeClass gives. `rules.runtime_class` says what; this looks the class up."""

from __future__ import annotations

from handfast.apiserver.admission import plugin
from handfast.rules import runtime_class

_CLASSES = "node.k8s.io/runtimeclasses/"


def admit(write: plugin.Write, context: plugin.Context) -> None:
    """Fill in the class's part of a new Pod, or refuse it."""
    pod = write.document
    if write.subresource or pod is None:
        return
    name = runtime_class.named(pod)
    found = context.find(_CLASSES, "", name) if name else {}
    plugin.require(write, runtime_class.absent(name) if found is None else runtime_class.apply(pod, found))


ROW = plugin.Row("RuntimeClass", frozenset({plugin.CREATE}), admit, frozenset({("", "pods")}), changes=True)
