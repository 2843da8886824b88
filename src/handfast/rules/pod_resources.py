# SPDX-License-Identifier: Apache-2.0
"""What a Pod asks for, all its containers together: the requests and limits that quotas and limit ranges look at.

Containers add up. An init container counts where it alone needs more than they do; one that goes on running (a sidecar)
adds up with them. The overhead comes on top where it is wanted. Nothing is judged here.

What the Pod itself says takes the place of the sum of limits. Of requests it counts where it is more: a Pod cannot ask for less than its
containers do, whatever it says. Where it says a limit and nobody a request, it requests that.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from handfast.api import jsonpath
from handfast.api.schema import quantities

Amounts = dict[str, Decimal]


def amounts(values: Mapping[str, Any]) -> Amounts:
    """A map of quantities as numbers; what is no quantity is left out."""
    parsed = ((name, quantities.parse(value)) for name, value in values.items())
    return {name: amount for name, amount in parsed if amount is not None}


def of_pod(spec: Any, key: str, *, overhead: bool = True) -> Amounts:
    """The `requests` or `limits` (`key`) of a Pod's spec."""
    total: Amounts = {}
    for container in jsonpath.mappings(spec, "containers"):
        _add(total, amounts(jsonpath.mapping(container, "resources", key)))
    sidecars: Amounts = {}
    most: Amounts = {}
    for container in jsonpath.mappings(spec, "initContainers"):
        own = amounts(jsonpath.mapping(container, "resources", key))
        if container.get("restartPolicy") == "Always":
            _add(total, own)
            _add(sidecars, own)
            _raise(most, sidecars)
        else:
            _add(own, sidecars)
            _raise(most, own)
    _raise(total, most)
    own = of_pod_itself(spec, key)
    if key == "requests":
        _raise(total, amounts(jsonpath.mapping(spec, "resources", key)))
        total = {**own, **total}
    else:
        total.update(own)
    if overhead:
        for name, amount in amounts(jsonpath.mapping(spec, "overhead")).items():
            # An overhead comes on top of a limit that is there, and makes none.
            if key == "requests" or name in total:
                total[name] = total.get(name, Decimal(0)) + amount
    return total


def of_pod_itself(spec: Any, key: str) -> Amounts:
    """What a Pod's spec says for all its containers: a limit is a request, too, where it has none."""
    own = amounts(jsonpath.mapping(spec, "resources", key))
    return own if key != "requests" else {**of_pod_itself(spec, "limits"), **own}


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, Decimal(0)) + amount


def _raise(total: Amounts, least: Amounts) -> None:
    for name, amount in least.items():
        if amount > total.get(name, Decimal(-1)):
            total[name] = amount
