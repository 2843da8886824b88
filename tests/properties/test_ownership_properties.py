# SPDX-License-Identifier: Apache-2.0
"""Who owns what after any sequence of creates, updates, patches and applies, compared with a model that only knows leaves.

The model holds, for each leaf of the object, its value and those who own it: the last who set it to that value and, since an
apply of the same value shares it, everyone who has applied it since.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handfast.api import status
from handfast.api.merging import apply, differences, fieldsets, managed_fields, shapes, updates

TYPES = "core.v1.Pod"
SHAPE = shapes.shape_of(TYPES)
Path = tuple[str, ...]
Owner = tuple[str, str]

letters = st.sampled_from("abc")
values = st.sampled_from(["1", "2"])
containers = st.lists(
    st.fixed_dictionaries({"name": letters}, optional={"image": values, "args": st.lists(values, max_size=2)}),
    min_size=1,
    max_size=2,
    unique_by=lambda each: each["name"],
)
pods = st.fixed_dictionaries(
    {
        "apiVersion": st.just("v1"),
        "kind": st.just("Pod"),
        "metadata": st.fixed_dictionaries(
            {"name": st.just("p")}, optional={"labels": st.dictionaries(letters, values, min_size=1, max_size=3)}
        ),
        # Something that is always there, so that the record never ends.
        "spec": st.fixed_dictionaries(
            {"hostname": st.just("h")}, optional={"containers": containers, "nodeName": values}
        ),
    }
)
steps = st.lists(
    st.tuples(st.sampled_from(["update", "patch", "apply", "force"]), st.sampled_from(["one", "two", "three"]), pods),
    max_size=6,
)


def leaves(document: Any) -> dict[Path, Any]:
    """The leaves that can be owned, with their values."""
    found: dict[Path, Any] = {}

    def walk(shape: shapes.Shape, value: Any, above: Path) -> None:
        for name, part, below in fieldsets.children(shape, value):
            if part == {} or (part == [] and below.list_type != "atomic"):
                # What is left of something that held leaves.
                continue
            if fieldsets.is_leaf(below, part):
                found[(*above, name)] = part
            else:
                walk(below, part, (*above, name))

    walk(SHAPE, document, ())
    unowned = set(differences.UNOWNED.paths())
    return {path: value for path, value in found.items() if path not in unowned}


class Model:
    """Who owns which leaf."""

    def __init__(self, document: Any, owner: Owner) -> None:
        self.values = leaves(document)
        self.owners: dict[Path, set[Owner]] = {path: {owner} for path in self.values}

    def write(self, after: dict[Path, Any], owner: Owner) -> None:
        """Who changes a leaf is its only owner; nobody owns what is gone."""
        for path, value in after.items():
            if self.values.get(path) != value:
                self.owners[path] = {owner}
        self.owners = {path: owners for path, owners in self.owners.items() if path in after}
        self.values = after

    def disputed(self, applied: dict[Path, Any], owner: Owner) -> set[Path]:
        """The leaves that an apply would change, and somebody else owns."""
        return {
            path
            for path, value in applied.items()
            if path in self.values and self.values[path] != value and self.owners.get(path, set()) - {owner}
        }

    def apply(self, after: dict[Path, Any], applied: dict[Path, Any], owner: Owner) -> None:
        self.write(after, owner)
        for path, owners in self.owners.items():
            owners.discard(owner)
            if path in applied:
                owners.add(owner)


def owners_of(rows: list[dict[str, Any]], paths: set[Path]) -> dict[Path, set[Owner]]:
    owners: dict[Path, set[Owner]] = {path: set() for path in paths}
    for entry in managed_fields.read_rows(rows):
        for path in set(entry.fields.paths()) & paths:
            owners[path].add((entry.operation, entry.manager))
    return owners


def merged(live: Any, pod: Any) -> Any:
    """As a patch would: labels and single fields put in, nothing taken out."""
    labels = {**live["metadata"].get("labels", {}), **pod["metadata"].get("labels", {})}
    metadata = {"name": "p", **({"labels": labels} if labels else {})}
    return {**live, "metadata": metadata, "spec": {**live["spec"], **pod["spec"]}}


def do_apply(live: Any, pod: Any, manager: str, now: str, *, force: bool) -> tuple[Any, list[dict[str, Any]]]:
    return apply.server_side_apply(live, pod, manager=manager, force=force, types=TYPES, api_version="v1", now_text=now)


@settings(max_examples=80)
@given(pods, steps)
def test_each_leaf_is_owned_by_whoever_set_it_last(first, changes):
    rows = updates.created(first, None, manager="maker", types=TYPES, api_version="v1", now_text="t0", ignored={})
    live = {**first, "metadata": {**first["metadata"], "managedFields": rows}}
    model = Model(first, ("Update", "maker"))
    for number, (how, manager, pod) in enumerate(changes):
        now = f"t{number + 1}"
        if how in {"update", "patch"}:
            after = pod if how == "update" else merged(live, pod)
            rows = updates.updated(live, after, None, manager=manager, types=TYPES, api_version="v1", now_text=now)
            live = {**after, "metadata": {**after["metadata"], "managedFields": rows}}
            model.write(leaves(after), ("Update", manager))
        else:
            owner, applied = ("Apply", manager), leaves(pod)
            disputed = model.disputed(applied, owner)
            if disputed and how == "apply":
                # A conflict is just where another owns a different value.
                with pytest.raises(status.StatusError) as refused:
                    do_apply(live, pod, manager, now, force=False)
                fields = {cause.field for cause in refused.value.causes}
                assert fields == {fieldsets.path_text(path) for path in disputed}
                continue
            live, rows = do_apply(live, pod, manager, now, force=how == "force")
            model.apply(leaves(live), applied, owner)
        assert owners_of(rows, set(model.values)) == {path: model.owners[path] for path in model.values}, (how, manager)
