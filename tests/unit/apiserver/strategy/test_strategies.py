# SPDX-License-Identifier: Apache-2.0
"""Which part of an object each subresource may change; over the wire it is tried in the scenarios."""

from __future__ import annotations

import copy
import datetime
from typing import Any

import pytest

from handfast.api import kinds, signer_names, status
from handfast.api.custom import definitions
from handfast.apiserver import identity
from handfast.apiserver.strategy import strategies
from handfast.bootstrap import tokens
from handfast.rules.machines import bootstrapper, source_address
from handfast.rules.tokens import maker
from tests.properties import sample_documents

WIDGET = sample_documents.widget(scale_paths=(".spec.deep.size", ".status.count", ""))
NOW = datetime.datetime(2026, 6, 1, 12, 0, 5, 700, tzinfo=datetime.UTC)
STAMP, BEFORE = "2026-06-01T12:00:05Z", "2026-05-01T00:00:00Z"


def row(plural: str) -> kinds.Kind:
    return next(found for found in kinds.builtin() if found.plural == plural)


def workload(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "w"}, "spec": {"template": {"image": "good"}, **spec}, "status": {"replicas": 1}}


@pytest.mark.parametrize("subresource", strategies.SUBRESOURCES)
def test_every_row_is_found(subresource: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(strategies.SUBRESOURCES, subresource, lambda *_: {"by": "row"})
    assert strategies.strategy(subresource, NOW)(row("pods"), {}, {}) == {"by": "row"}


@pytest.mark.parametrize("subresource", ["eviction", "token", "frob", "Scale", "scale/"])
def test_an_unknown_one_writes_nothing(subresource: str) -> None:
    with pytest.raises(status.StatusError, match=f'through the subresource "{subresource}"') as caught:
        strategies.strategy(subresource, NOW)
    assert caught.value.code == 405


@pytest.mark.parametrize(("kind", "place"), [(row("deployments"), ("replicas",)), (WIDGET, ("deep", "size"))])
def test_scale_takes_the_number_and_the_record(kind: kinds.Kind, place: tuple[str, ...]) -> None:
    old = workload(replicas=1, deep={"size": 1})
    before, sent = copy.deepcopy(old), workload(replicas=7, deep={"size": 7, "evil": 1}, evil=1)
    sent |= {"status": {}, "evil": 1, "metadata": {"name": "x", "labels": {"a": "b"}, "managedFields": ["mine"]}}
    found = strategies.strategy("scale", NOW)(kind, sent, old)
    assert old == before
    wanted = workload(replicas=1, deep={"size": 1})
    inner = wanted["spec"]
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = 7
    assert found == {**wanted, "metadata": {"name": "w", "managedFields": ["mine"]}}
    # Said again after a webhook, it says the same.
    assert strategies.strategy("scale", NOW)(kind, copy.deepcopy(found), old) == found


def test_scale_without_a_number_changes_nothing() -> None:
    assert strategies.strategy("scale", NOW)(WIDGET, {"metadata": {}}, workload()) == workload()


def test_binding_takes_the_node_and_its_condition() -> None:
    mine, bound = {"type": "Mine"}, {"type": "PodScheduled", "status": "True"}
    old = workload() | {"status": {"phase": "Pending", "conditions": [mine, {"type": "PodScheduled"}]}}
    sent = workload(nodeName="n", evil=1) | {"status": {"phase": "evil", "conditions": [{"type": "Evil"}, bound]}}
    found = strategies.strategy("binding", NOW)(row("pods"), sent, old)
    assert found["spec"] == {**old["spec"], "nodeName": "n"}
    assert found["status"] == {"phase": "Pending", "conditions": [mine, bound]}
    assert strategies.strategy("binding", NOW)(row("pods"), sent, workload())["status"]["conditions"] == [bound]


def test_the_status_of_a_definition_is_the_servers() -> None:
    kind = next(found for found in kinds.builtin() if found.resource == definitions.RESOURCE)
    old = {"metadata": {"name": "d"}, "status": {"acceptedNames": {"plural": "a"}, "conditions": ["stored"]}}
    sent = {"metadata": {"name": "d"}, "status": {"acceptedNames": {"plural": "b"}, "storedVersions": ["v9"]}}
    assert strategies.strategy("status", NOW)(kind, sent, old) == old


def condition(kind: str = "Approved", status_: str = "True", **times: Any) -> dict[str, Any]:
    return {"type": kind, "status": status_, **times}


def times(updated: str, changed: str) -> dict[str, str]:
    return {"lastUpdateTime": updated, "lastTransitionTime": changed}


@pytest.mark.parametrize("door", ["approval", "status"])
@pytest.mark.parametrize(
    "before, sent, after",
    [
        pytest.param([], [condition("Failed")], [times(STAMP, STAMP)], id="new: both are now"),
        pytest.param([], [condition("Failed", lastUpdateTime="")], [times(STAMP, STAMP)], id="empty is missing"),
        pytest.param([], [condition("Failed", lastUpdateTime=None)], [times(STAMP, STAMP)], id="null is missing"),
        pytest.param([], [condition("Failed", **times("a", "b"))], [times("a", "b")], id="what was sent stays"),
        pytest.param(
            [condition("Failed", **times(BEFORE, BEFORE))],
            [condition("Failed")],
            [times(STAMP, BEFORE)],
            id="the same type and status keep their transition",
        ),
        pytest.param(
            [condition("Ready", **times(BEFORE, BEFORE))],
            [condition("Ready", "False")],
            [times(STAMP, STAMP)],
            id="another status is a transition",
        ),
        pytest.param(
            [condition("Failed")], [condition("Failed")], [times(STAMP, STAMP)], id="before it, no time was known"
        ),
        pytest.param(
            [condition("Failed", **times(BEFORE, BEFORE))],
            [condition("Failed", lastTransitionTime="c"), condition("Ready")],
            [times(STAMP, "c"), times(STAMP, STAMP)],
            id="each for itself",
        ),
    ],
)
def test_the_times_of_conditions(door: str, before: list[Any], sent: list[Any], after: list[Any]) -> None:
    old = {"metadata": {"name": "x"}, "spec": {}, "status": {"conditions": before}}
    untouched = copy.deepcopy(old)
    document = {"metadata": {"name": "x"}, "status": {"conditions": sent}}
    found = strategies.strategy(door, NOW)(row("certificatesigningrequests"), document, old)
    assert [{key: each[key] for key in times("", "")} for each in found["status"]["conditions"]] == after
    assert old == untouched
    # Said again after a webhook, a second later, it says the same.
    again = strategies.strategy(door, NOW + datetime.timedelta(seconds=1))
    assert again(row("certificatesigningrequests"), copy.deepcopy(found), old) == found


@pytest.mark.parametrize("kind", ["Approved", "Denied"])
def test_a_verdict_is_not_stamped_anew_by_a_signer(kind: str) -> None:
    old: dict[str, Any] = {
        "metadata": {"name": "x"},
        "status": {"conditions": [condition(kind, **times(BEFORE, BEFORE))]},
    }
    sent = {"metadata": {"name": "x"}, "status": {"conditions": [condition(kind)], "certificate": "c"}}
    found = strategies.strategy("status", NOW)(row("certificatesigningrequests"), sent, old)
    assert found["status"] == {**old["status"], "certificate": "c"}


def test_other_kinds_and_doors_are_not_stamped() -> None:
    sent = {"metadata": {"name": "n"}, "status": {"conditions": [condition("Ready")]}}
    found = strategies.strategy("status", NOW)(row("nodes"), copy.deepcopy(sent), {"metadata": {"name": "n"}})
    assert found["status"] == sent["status"]
    assert strategies.strategy("", NOW) is strategies.SUBRESOURCES[""]


@pytest.mark.parametrize("conditions", [None, [], ["junk"]])
def test_odd_conditions_are_left_to_validation(conditions: Any) -> None:
    sent = {"metadata": {"name": "x"}, "status": {"conditions": conditions}}
    found = strategies.strategy("approval", NOW)(row("certificatesigningrequests"), sent, {"metadata": {"name": "x"}})
    assert found["status"] == ({"conditions": conditions} if conditions else {})


def test_a_stamp_is_the_servers_also_after_a_webhook() -> None:
    kind, user = row("certificatesigningrequests"), identity.User(bootstrapper.USER, ("joiners",))
    document: dict[str, Any] = {"metadata": {"name": "x"}, "spec": {"signerName": signer_names.KUBELET_CLIENT}}
    strategies.prepare_create(kind, document, "", user, NOW, "10.0.0.1")
    assert document["spec"]["extra"] == {source_address.KEY: ["10.0.0.1"]}
    document["spec"]["extra"] = {source_address.KEY: ["10.0.0.66"], "more": ["x"]}
    strategies.settle_create(kind, document, user, "10.0.0.1")
    assert document["spec"]["extra"] == {source_address.KEY: ["10.0.0.1"]}
    # Where it cannot be known, nothing is said.
    strategies.settle_create(kind, document, user)
    assert "extra" not in document["spec"]


def test_what_of_a_pod_was_observed_is_kept_where_a_writer_does_not_know_the_field() -> None:
    ready, other = {"type": "Ready", "status": "True"}, {"type": "Other", "status": "True"}
    conditions = [{**ready, "observedGeneration": 2}, {**ready, "observedGeneration": 3}, other]
    old = workload() | {"status": {"observedGeneration": 4, "conditions": conditions}}
    before = copy.deepcopy(old)
    sent = workload() | {
        "status": {"phase": "Running", "conditions": [ready, {**other, "observedGeneration": 5}, ready, ready]}
    }
    assert strategies.strategy("status", NOW)(row("pods"), sent, old)["status"] == {
        "phase": "Running",
        "observedGeneration": 4,
        "conditions": [conditions[0], {**other, "observedGeneration": 5}, conditions[1], ready],
    }
    told = workload() | {"status": {"observedGeneration": 6}}
    assert strategies.strategy("status", NOW)(row("pods"), told, old)["status"] == {"observedGeneration": 6}
    assert old == before


def test_the_generation_of_a_pod_counts_changes_of_its_spec() -> None:
    old: dict[str, Any] = {"metadata": {"name": "w", "generation": 1}, "spec": {"a": 1}, "status": {}}
    same, other = copy.deepcopy(old), copy.deepcopy(old)
    same["status"], other["spec"] = {"phase": "Running"}, {"a": 2}
    strategies.count_generation(row("pods"), same, old)
    strategies.count_generation(row("pods"), other, old)
    assert (same["metadata"]["generation"], other["metadata"]["generation"]) == (1, 2)


def test_who_made_a_token_is_the_servers_to_say_and_stays() -> None:
    kind, alice = row("secrets"), identity.User("alice", ())
    document: dict[str, Any] = {
        "metadata": {"name": "x", "annotations": {maker.KEY: "bob"}},
        "type": tokens.SECRET_TYPE,
    }
    strategies.prepare_create(kind, document, "kube-system", alice, NOW)
    assert maker.of(document) == "alice"
    changed = {**document, "metadata": {**document["metadata"], "annotations": {maker.KEY: "bob", "more": "x"}}}
    assert strategies.strategy("", NOW)(kind, changed, document)["metadata"]["annotations"] == {
        maker.KEY: "alice",
        "more": "x",
    }
