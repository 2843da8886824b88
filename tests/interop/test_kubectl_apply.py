# SPDX-License-Identifier: Apache-2.0
"""kubectl apply and diff, client-side and server-side: first time, again, with fields removed, against other owners.

"Again" is proved by resource versions, not only by what kubectl prints: nothing is written when nothing changes.
"""

from __future__ import annotations

import json

import pytest

from tests.interop import manifests, running

pytestmark = [pytest.mark.slow, pytest.mark.kubectl]

_NAMES = ("cm/settings", "secret/password", "pod/web", "service/web", "deployment/web")
# What the second version of the manifest leaves out, and what it changes.
_LESS = (
    manifests.USUAL.replace('  size: "3"\n', "")
    .replace("        - {name: B, value: b}\n", "")
    .replace("      - name: side\n        image: busybox\n", "")
    .replace("  labels: {app: web}\ndata", "data")
    .replace("  replicas: 2\n", "  replicas: 4\n")
)


def _versions(kubectl: running.Kubectl) -> list[str]:
    items = kubectl.json("get", *_NAMES)["items"]
    return [item["metadata"]["resourceVersion"] for item in items]


def _require_less(kubectl: running.Kubectl) -> None:
    """The fields that the second manifest lacks are gone, and no other."""
    settings = kubectl.json("get", "cm", "settings")
    assert settings["data"] == {"colour": "green"}
    assert "labels" not in settings["metadata"]
    spec = kubectl.json("get", "deployment", "web")["spec"]
    assert spec["replicas"] == 4
    (container,) = spec["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "A", "value": "a"}]
    assert container["terminationMessagePath"] == "/dev/termination-log"


def test_client_side_twice_writes_once(kubectl):
    assert all(line.endswith(" created") for line in kubectl("apply", "-f", "-", stdin=manifests.USUAL).lines)
    before = _versions(kubectl)
    printed = kubectl("apply", "-f", "-", stdin=manifests.USUAL).lines
    # kubectl sends stringData each time, because it never comes back; the server sees that nothing changes.
    assert printed == [
        "configmap/settings unchanged",
        "secret/password configured",
        "pod/web unchanged",
        "service/web unchanged",
        "deployment.apps/web unchanged",
    ]
    assert _versions(kubectl) == before


def test_client_side_removes_what_left_the_manifest(kubectl):
    kubectl("apply", "-f", "-", stdin=manifests.USUAL)
    printed = kubectl("apply", "-f", "-", stdin=_LESS).lines
    assert "configmap/settings configured" in printed
    assert "deployment.apps/web configured" in printed
    _require_less(kubectl)
    assert kubectl.json("get", "deployment", "web")["metadata"]["generation"] == 2
    last = kubectl.json("apply", "view-last-applied", "cm/settings")
    assert last["data"] == {"colour": "green"}


def test_client_side_keeps_what_others_added(kubectl):
    kubectl("apply", "-f", "-", stdin=manifests.USUAL)
    kubectl("label", "cm", "settings", "team=blue")
    kubectl("patch", "deployment", "web", "--type=merge", "-p", '{"spec": {"paused": true}}')
    kubectl("apply", "-f", "-", stdin=manifests.USUAL.replace("replicas: 2", "replicas: 5"))
    assert kubectl.json("get", "cm", "settings")["metadata"]["labels"] == {"app": "web", "team": "blue"}
    spec = kubectl.json("get", "deployment", "web")["spec"]
    assert (spec["replicas"], spec["paused"]) == (5, True)


def test_dry_run_on_the_server_changes_nothing(kubectl):
    kubectl.needs(27, "dry runs asked for by OpenAPI v3")
    kubectl("apply", "-f", "-", stdin=manifests.USUAL)
    before = _versions(kubectl)
    assert (
        "configmap/settings configured (server dry run)"
        in kubectl("apply", "-f", "-", "--dry-run=server", stdin=_LESS).lines
    )
    assert _versions(kubectl) == before


@pytest.mark.parametrize("how", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_diff_shows_what_apply_would_change(kubectl, how):
    kubectl.needs(27, "dry runs asked for by OpenAPI v3")
    kubectl("apply", *how, "-f", "-", stdin=manifests.USUAL)
    before = _versions(kubectl)
    assert kubectl("diff", *how, "-f", "-", stdin=manifests.USUAL).out == ""
    shown = kubectl("diff", *how, "-f", "-", stdin=_LESS, code=1).lines
    for line in ('-  size: "3"', "-  replicas: 2", "+  replicas: 4", "-      - image: busybox", "-  generation: 1"):
        assert line in shown
    assert _versions(kubectl) == before


def test_server_side_twice_writes_once(kubectl):
    printed = kubectl("apply", "--server-side", "-f", "-", stdin=manifests.USUAL).lines
    assert all(line.endswith(" serverside-applied") for line in printed)
    before = _versions(kubectl)
    kubectl("apply", "--server-side", "-f", "-", stdin=manifests.USUAL)
    assert _versions(kubectl) == before


@pytest.mark.parametrize("how", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_every_kind_twice_writes_once(kubectl, unique, tmp_path, how):
    kubectl.needs(27, "dry runs asked for by OpenAPI v3")
    # Lists that are replaced as a whole come without the defaults the server had filled in: they must not count as changed.
    file = tmp_path / "every.yaml"
    file.write_text(manifests.EVERY_KIND.replace("every", unique))
    kubectl("apply", *how, "-f", str(file))
    before = kubectl.json("get", "-f", str(file))
    kubectl("apply", *how, "-f", str(file))
    assert kubectl.json("get", "-f", str(file)) == before
    assert kubectl("diff", *how, "-f", str(file)).out == ""


def test_server_side_removes_what_left_the_manifest(kubectl):
    kubectl("apply", "--server-side", "-f", "-", stdin=manifests.USUAL)
    kubectl("apply", "--server-side", "-f", "-", stdin=_LESS)
    _require_less(kubectl)


def test_server_side_conflicts_name_the_owner_until_forced(kubectl):
    kubectl.needs(21, "--show-managed-fields")
    first = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\ndata: {a: '1', b: '1'}\n"
    second = first.replace("a: '1', b: '1'", "a: '2'")
    mine = ("apply", "--server-side", "--field-manager=mine", "-f", "-")
    yours = ("apply", "--server-side", "--field-manager=yours", "-f", "-")
    kubectl(*mine, stdin=first)
    assert 'Apply failed with 1 conflict: conflict with "mine": .data.a' in kubectl.fails(*yours, stdin=second)
    kubectl(*yours, "--force-conflicts", stdin=second)
    document = kubectl.json("get", "cm", "shared", "--show-managed-fields")
    assert document["data"] == {"a": "2", "b": "1"}
    owned = {row["manager"]: row["fieldsV1"]["f:data"] for row in document["metadata"]["managedFields"]}
    assert owned == {"mine": {"f:b": {}}, "yours": {"f:a": {}}}
    assert "managedFields" not in kubectl.json("get", "cm", "shared")["metadata"]


def test_from_client_side_to_server_side_and_back(kubectl):
    kubectl("apply", "-f", "-", stdin=manifests.USUAL)
    moved = kubectl("apply", "--server-side", "-f", "-", stdin=manifests.USUAL)
    assert "Warning" not in moved.err
    again = kubectl("apply", "-f", "-", stdin=_LESS)
    assert again.err == ""
    assert kubectl.json("get", "cm", "settings")["data"] == {"colour": "green"}


def test_unknown_fields(kubectl):
    kubectl.needs(25, "field validation by the server")
    odd = json.dumps(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "odd", "colour": 1}, "data": {"a": "b"}}
    )
    assert 'strict decoding error: unknown field "metadata.colour"' in kubectl.fails("apply", "-f", "-", stdin=odd)
    # Nobody can own a field that there is not: server-side apply refuses it whatever is said about validation.
    for how in ("--validate=true", "--validate=false"):
        said = kubectl.fails("apply", "--server-side", how, "-f", "-", stdin=odd)
        assert ".metadata.colour: field not declared in schema" in said
    warned = kubectl("apply", "-f", "-", "--validate=warn", stdin=odd)
    assert (warned.out, warned.err) == ("configmap/odd created\n", 'Warning: unknown field "metadata.colour"\n')
    assert "colour" not in kubectl.json("get", "cm", "odd")["metadata"]
    silent = kubectl("apply", "-f", "-", "--validate=ignore", stdin=odd.replace('"b"', '"c"'))
    assert (silent.out, silent.err) == ("configmap/odd configured\n", "")


def _owners(kubectl: running.Kubectl, name: str) -> dict[tuple[str, str, str], list[str]]:
    """Who owns which data, in the words of `--show-managed-fields`: manager, operation and subresource -> keys."""
    rows = kubectl.json("get", "cm", name, "--show-managed-fields")["metadata"]["managedFields"]
    return {
        (row["manager"], row["operation"], row.get("subresource", "")): sorted(
            key[2:] for key in row["fieldsV1"].get("f:data", {}) if key != "."
        )
        for row in rows
    }


def test_from_client_side_to_server_side_with_a_changed_value(kubectl):
    kubectl.needs(26, "kubectl moves what it owned itself")
    before = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: moved}\ndata: {size: small, colour: green}\n"
    kubectl("apply", "-f", "-", stdin=before)
    assert _owners(kubectl, "moved") == {("kubectl-client-side-apply", "Update", ""): ["colour", "size"]}
    after = before.replace("small", "large")
    printed = kubectl("apply", "--server-side", "-f", "-", stdin=after).out
    assert printed == "configmap/moved serverside-applied\n"
    owners = _owners(kubectl, "moved")
    assert owners[("kubectl", "Apply", "")] == ["colour", "size"]
    assert ("kubectl-client-side-apply", "Update", "") not in owners
    # The annotation follows, so that the old way can go on from here.
    assert kubectl.json("apply", "view-last-applied", "cm/moved")["data"] == {"size": "large", "colour": "green"}
    kubectl("apply", "-f", "-", stdin=after.replace(", colour: green", ""))
    assert kubectl.json("get", "cm", "moved")["data"] == {"size": "large"}


def test_another_applier_conflicts_with_who_created_it(kubectl):
    kubectl("create", "cm", "owned", "--from-literal=size=small")
    assert _owners(kubectl, "owned") == {("kubectl-create", "Update", ""): ["size"]}
    kubectl("patch", "cm", "owned", "--type=merge", "-p", '{"data": {"colour": "green"}}')
    assert _owners(kubectl, "owned")[("kubectl-patch", "Update", "")] == ["colour"]
    wanted = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: owned}\ndata: {size: large, colour: red}\n"
    said = kubectl.fails("apply", "--server-side", "--field-manager=argo", "-f", "-", stdin=wanted)
    assert 'conflicts with "kubectl-create" using v1:\n- .data.size\n' in said
    assert 'conflicts with "kubectl-patch" using v1:\n- .data.colour\n' in said
    kubectl("apply", "--server-side", "--field-manager=argo", "--force-conflicts", "-f", "-", stdin=wanted)
    owners = _owners(kubectl, "owned")
    assert owners[("argo", "Apply", "")] == ["colour", "size"]
    assert owners.get(("kubectl-create", "Update", ""), []) == []
