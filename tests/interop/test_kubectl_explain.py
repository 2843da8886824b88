# SPDX-License-Identifier: Apache-2.0
"""kubectl explain, and what it refuses by the schema: of kinds that are built in, and of one that was defined a moment ago.

With `--output=plaintext-openapiv2` kubectl reads the whole OpenAPI 2 document, in protobuf.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.interop import running

pytestmark = [pytest.mark.slow, pytest.mark.kubectl]

GROUP = "explained.example.com"
NAME = f"tabs.{GROUP}"
OLD = "--output=plaintext-openapiv2"


def definition() -> dict[str, Any]:
    """A kind in two versions, of which the first is stored."""
    fields = {
        "size": {"type": "integer", "description": "How large it is."},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "port": {"x-kubernetes-int-or-string": True},
        "may": {"type": "string", "nullable": True},
        "template": {"type": "object", "x-kubernetes-embedded-resource": True},
    }
    spec = {"type": "object", "description": "What is wanted.", "properties": fields, "required": ["size", "may"]}
    schema = {"type": "object", "description": "A tab for tests.", "properties": {"spec": spec}}
    served = {"served": True, "schema": {"openAPIV3Schema": schema}}
    versions = [{"name": name, "storage": name == "v1", **served} for name in ("v1", "v2")]
    names = {"plural": "tabs", "singular": "tab", "kind": "Tab", "listKind": "TabList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": versions},
    }


def tab(**spec: Any) -> str:
    document = {"apiVersion": f"{GROUP}/v1", "kind": "Tab", "metadata": {"name": "t"}}
    return json.dumps({**document, "spec": {"size": 1, "may": "x", **spec}})


def published(kubectl: running.Kubectl) -> set[str]:
    """Versions and kinds of the group that OpenAPI 2 has a schema of."""
    prefix = "com.example.explained."
    schemas = kubectl("get", "--raw", "/openapi/v2").json()["definitions"]
    return {name.removeprefix(prefix) for name in schemas if name.startswith(prefix)}


@pytest.fixture
def defined(kubectl: running.Kubectl) -> Any:
    kubectl.needs(27, "explaining by OpenAPI v3")
    kubectl("create", "-f", "-", stdin=json.dumps(definition()))
    yield kubectl
    kubectl("delete", "crd", NAME, "--ignore-not-found", "--timeout=20s")


DESCRIBED = {
    "secret": "bootstrap token",
    "csr.spec.signerName": "Which signer is asked",
    "clusterrole.rules.verbs": "What may be done",
    "mutatingwebhookconfiguration.webhooks.failurePolicy": "Fail (the default) or Ignore",
    "node.metadata.creationTimestamp": "CreationTimestamp is a timestamp",
    "revocation.spec.node": "Refuses the user system:node:NAME",
}


def test_kinds_and_fields_that_this_system_is_about_are_described(kubectl):
    kubectl.needs(27, "explaining by OpenAPI v3")
    for what, says in DESCRIBED.items():
        assert says in " ".join(kubectl("explain", what).out.split())
    assert "cannot be changed" in " ".join(kubectl("explain", "secret.type", OLD).out.split())


def test_what_nobody_described_says_nothing(kubectl):
    kubectl.needs(27, "explaining by OpenAPI v3")
    for how in ((), (OLD,)):
        shown = kubectl("explain", "pod.spec.hostIPC", *how).out
        assert "hostIPC <boolean>" in shown
        assert "<empty>" in shown


def test_a_kind_is_explained_as_soon_as_it_is_defined_and_no_longer_than_it_is(defined):
    for how in ((), (OLD,)):
        assert "A tab for tests." in defined("explain", NAME, *how).out
        fields = defined("explain", f"{NAME}.spec", *how).out
        assert "How large it is." in fields
        assert "port" in fields
        assert "Standard object's metadata" in " ".join(defined("explain", f"{NAME}.metadata", *how).out.split())
    assert "creationTimestamp" in defined("explain", f"{NAME}.spec.template.metadata").out
    assert 'field "none" does not exist' in defined.fails("explain", f"{NAME}.spec.none")
    rename = [{"op": "replace", "path": "/spec/versions/1/name", "value": "v3"}]
    defined("patch", "crd", NAME, "--type=json", "-p", json.dumps(rename))
    assert published(defined) == {"v1.Tab", "v1.TabList", "v3.Tab", "v3.TabList"}
    stop = [{"op": "replace", "path": "/spec/versions/1/served", "value": False}]
    defined("patch", "crd", NAME, "--type=json", "-p", json.dumps(stop))
    assert published(defined) == {"v1.Tab", "v1.TabList"}
    defined("delete", "crd", NAME, "--timeout=20s")
    assert published(defined) == set()
    assert GROUP not in defined("get", "--raw", "/openapi/v3").out


def test_the_old_form_says_of_a_kind_what_old_clients_understand(defined):
    schemas = defined("get", "--raw", "/openapi/v2").json()["definitions"]
    spec = schemas["com.example.explained.v1.Tab"]["properties"]["spec"]
    assert spec["required"] == ["size"], "what may be null is not required"
    fields = spec["properties"]
    assert fields["free"] == {"x-kubernetes-preserve-unknown-fields": True}
    assert fields["port"] == {"x-kubernetes-int-or-string": True}
    assert fields["may"] == {}
    assert fields["template"]["required"] == ["kind", "apiVersion"]


def test_objects_are_checked_by_the_schema_that_was_just_defined(defined):
    for how in ("create", "apply"):
        said = defined.fails(how, "--validate=true", "-f", "-", stdin=tab(colour="red"))
        assert 'unknown field "spec.colour"' in said
    assert defined("apply", "--validate=true", "-f", "-", stdin=tab(free={"any": {"thing": 1}})).out.endswith(
        "created\n"
    )
    warned = defined("apply", "--validate=warn", "-f", "-", stdin=tab(colour="red"))
    assert 'Warning: unknown field "spec.colour"' in warned.err
    silent = defined("apply", "--validate=ignore", "-f", "-", stdin=tab(colour="red", size=2))
    assert "Warning" not in silent.err
    said = defined.fails("apply", "--server-side", "--validate=ignore", "-f", "-", stdin=tab(colour="red"))
    assert ".spec.colour: field not declared in schema" in said
