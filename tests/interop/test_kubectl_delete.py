# SPDX-License-Identifier: Apache-2.0
"""kubectl delete: waiting, selecting, by file, with grace and force, and the three ways to treat dependents."""

from __future__ import annotations

import json

import pytest

from tests.interop import manifests, running

pytestmark = [pytest.mark.slow, pytest.mark.kubectl]


def _family(kubectl: running.Kubectl) -> None:
    """A parent, and two children that it owns; one of them holds its deletion up."""
    parent = kubectl.json("create", "configmap", "parent")
    for name, blocks in (("first", True), ("second", False)):
        owner = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "parent",
            "uid": parent["metadata"]["uid"],
            "blockOwnerDeletion": blocks,
        }
        metadata = {"name": name, "labels": {"child": ""}, "ownerReferences": [owner]}
        child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        kubectl("create", "-f", "-", stdin=json.dumps(child))


def _children(kubectl: running.Kubectl) -> list[str]:
    return kubectl("get", "cm", "-l", "child", "-o", "name").lines


def _cascade(kubectl: running.Kubectl, how: str) -> str:
    kubectl.needs(20, "--cascade=background|foreground|orphan")
    return f"--cascade={how}"


def test_background_deletes_the_children_soon(kubectl):
    _family(kubectl)
    assert kubectl("delete", "cm", "parent", _cascade(kubectl, "background")).out.startswith(
        'configmap "parent" deleted'
    )
    running.eventually(lambda: not _children(kubectl), "the children are collected")


def test_foreground_deletes_the_children_first(kubectl):
    _family(kubectl)
    kubectl("delete", "cm", "parent", _cascade(kubectl, "foreground"))
    # kubectl returned because the parent is gone, and it went after the child that blocks it.
    assert "configmap/first" not in _children(kubectl)
    running.eventually(lambda: not _children(kubectl), "the other child is collected")


def test_orphan_keeps_the_children_and_clears_their_owner(kubectl):
    _family(kubectl)
    kubectl("delete", "cm", "parent", _cascade(kubectl, "orphan"))
    items = kubectl.json("get", "cm", "-l", "child")["items"]
    assert [item["metadata"]["name"] for item in items] == ["first", "second"]
    assert all("ownerReferences" not in item["metadata"] for item in items)


def test_by_name_selector_file_and_all(kubectl, tmp_path):
    kubectl("create", "-f", "-", stdin=manifests.config_maps(5))
    assert kubectl("delete", "cm", "many-000", "many-001").out.count(" deleted") == 2
    kubectl("label", "cm", "many-002", "last=yes")
    assert kubectl("delete", "cm", "-l", "last").out.count(" deleted") == 1
    (tmp_path / "usual.yaml").write_text(manifests.USUAL)
    kubectl("create", "-f", str(tmp_path))
    assert kubectl("delete", "-f", str(tmp_path / "usual.yaml")).out.count(" deleted") == 5
    assert kubectl("get", "cm", "-o", "name").lines == [
        "configmap/kube-root-ca.crt",
        "configmap/many-003",
        "configmap/many-004",
    ]
    assert kubectl("delete", "secrets,cm", "--all").out.count(" deleted") == 3
    # The controllers put back what belongs to every namespace.
    running.eventually(
        lambda: kubectl("get", "cm", "-o", "name").lines == ["configmap/kube-root-ca.crt"], "the root CA is back"
    )


def test_what_is_not_there(kubectl):
    assert kubectl.fails("delete", "cm", "nothing") == 'Error from server (NotFound): configmaps "nothing" not found'
    kubectl("delete", "cm", "nothing", "--ignore-not-found")
    assert (
        "No resources found" in kubectl("delete", "cm", "-l", "nothing").out + kubectl("delete", "secrets", "--all").out
    )


def test_dry_run_deletes_nothing(kubectl):
    kubectl.needs(27, "dry runs asked for by OpenAPI v3")
    kubectl("create", "configmap", "one")
    assert "(server dry run)" in kubectl("delete", "cm", "one", "--dry-run=server").out
    kubectl("get", "cm", "one")


def test_a_pod_on_a_node_has_its_grace_until_forced(kubectl):
    bound = manifests.USUAL.split("---\n")[2].replace("spec:\n", "spec:\n  nodeName: somewhere\n", 1)
    kubectl("create", "-f", "-", stdin=bound)
    kubectl("delete", "pod", "web", "--wait=false", "--grace-period=20")
    pod = kubectl.json("get", "pod", "web")["metadata"]
    assert pod["deletionGracePeriodSeconds"] == 20
    assert pod["deletionTimestamp"]
    assert "Terminating" in kubectl("get", "pod", "web").out
    kubectl("delete", "pod", "web", "--grace-period=0", "--force")
    assert 'pods "web" not found' in kubectl.fails("get", "pod", "web")


def test_a_finalizer_holds_the_object_until_it_is_removed(kubectl):
    held = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "held", "finalizers": ["example.com/hold"]},
    }
    kubectl("create", "-f", "-", stdin=json.dumps(held))
    with kubectl.running("delete", "cm", "held") as stream:
        running.eventually(
            lambda: "deletionTimestamp" in kubectl.json("get", "cm", "held")["metadata"], "it is marked for deletion"
        )
        assert stream.process.poll() is None
        assert "no new finalizers can be added if the object is being deleted" in kubectl.fails(
            "patch", "cm", "held", "--type=merge", "-p", '{"metadata": {"finalizers": ["example.com/hold", "a/b"]}}'
        )
        kubectl("patch", "cm", "held", "--type=merge", "-p", '{"metadata": {"finalizers": null}}')
        assert stream.ended()[0] == 0
    assert "not found" in kubectl.fails("get", "cm", "held")


def test_a_namespace_goes_with_everything_in_it(kubectl, unique):
    kubectl("create", "namespace", unique)
    kubectl("create", "--namespace", unique, "-f", "-", stdin=manifests.USUAL)
    kubectl("delete", "namespace", unique)
    assert f'namespaces "{unique}" not found' in kubectl.fails("get", "namespace", unique)
    assert kubectl("get", "cm,secrets,pods,services,deployments", "--namespace", unique).out == ""
    assert "not found" in kubectl.fails("create", "configmap", "late", "--namespace", unique)
