# SPDX-License-Identifier: Apache-2.0
"""Streams of manifests: what is changed, what stays byte for byte, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from handfast import errors
from handfast.api.codec import yaml_document
from handfast.rules.mesh import injectable, manifests
from tests.unit.rules.mesh import pods


def run(data: str, change: manifests.Change | None = None, **chosen: bool) -> tuple[str, list[str]]:
    by = manifests.injecting(pods.plan(**chosen)) if change is None else change
    rows = list(manifests.texts(manifests.read(data.encode()), by, lambda value: f"{json.dumps(value)}\n"))
    return "".join(text for text, _ in rows), [str(report) for _, reports in rows for report in reports]


def test_foreign_documents_stay_byte_for_byte():
    data = "# a comment\r\n---  # another\nkind:   Service\nmetadata: {name: 'a'}\n---\n--- \nspec: 1\n--- [1, 2]\n---\nkind: ConfigMap"
    text, reports = run(data)
    assert text == data
    assert reports == [
        "service/a skipped: this resource kind is unsupported",
        'document skipped: it has no field "kind"',
        'document skipped: it has no field "kind"',
        "configmap skipped: this resource kind is unsupported",
    ]
    assert run("") == ("", [])


def test_a_workload_among_them_is_injected_and_put_back():
    before = f"kind: Service\n---\n{json.dumps(pods.deployment())}\n---\n# the end\n"
    injected, reports = run(before)
    assert reports == ["service skipped: this resource kind is unsupported", "deployment/web injected"]
    assert injected.startswith("kind: Service\n---\n{")
    assert injected.endswith("---\n# the end\n")
    assert run(injected)[0] == injected
    assert run(injected, manifests.uninjecting) == (
        before,
        ["service skipped: nothing was injected here", "deployment/web uninjected"],
    )


def test_the_items_of_lists_are_objects_each():
    items = {"apiVersion": "v1", "kind": "List", "items": [pods.pod(), {"kind": "Service"}, 7]}
    text, reports = run(json.dumps(items))
    assert reports[0] == "pod/web injected"
    assert json.loads(text)["items"][1:] == items["items"][1:]
    assert json.loads(run(text, manifests.uninjecting)[0]) == items


def test_a_list_of_one_kind_says_it_for_its_items():
    bare = {"spec": {"containers": [{"name": "a"}]}}
    text, reports = run(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [bare]}))
    [item] = json.loads(text)["items"]
    assert reports == ["pod injected"]
    assert set(item) == {"spec", "metadata"}


def test_a_workload_that_is_told_to_have_none_is_left_alone():
    document = pods.pod(hostNetwork=True)
    document["metadata"]["annotations"] = {injectable.INJECT: "disabled"}
    text = json.dumps(document)
    assert run(text) == (text, ["pod/web skipped: linkerd.io/inject is disabled"])


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (pods.pod(hostNetwork=True), "hostNetwork is enabled"),
        (pods.pod(containers=[{"name": "istio-proxy"}]), "pod has a sidecar injected already"),
    ],
)
def test_what_cannot_get_a_proxy_is_refused(document, words):
    with pytest.raises(manifests.NotInjectable, match=f"pod/web cannot be injected: {words}"):
        run(json.dumps(document))


def test_the_token_of_the_account_has_to_be_mounted_where_it_is_used():
    document = json.dumps(pods.pod(automountServiceAccountToken=False))
    assert run(document)[1] == ["pod/web injected"]
    with pytest.raises(manifests.NotInjectable, match="automountServiceAccountToken is false"):
        run(document, own_token=False, accept_api_audience=True)


def test_an_identity_on_a_service_is_refused():
    with pytest.raises(injectable.BadAnnotation):
        run("kind: Service\nmetadata: {annotations: {linkerd.io/identity: enabled}}\n")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a: &a [1]\n---\nb: 1\nc: &x [1]\nd: *x\n", "aliases are not accepted"),
        (b"kind: A\n---\nb: [1\n", "line 4: "),
        (b"\xff", "not valid UTF-8"),
        (b"kind: A\nkind: B\n", "kind is there twice"),
        (b"a: {b: !!python/name:os.system x}\n", "only the tag !!str"),
    ],
)
def test_what_cannot_be_read_is_refused(data, text):
    with pytest.raises(manifests.BadManifest, match=text) as refused:
        manifests.read(data)
    assert isinstance(refused.value, errors.Refused)


def test_each_of_many_documents_is_read_by_itself(monkeypatch):
    sizes = []
    load = yaml_document.load

    def measured(body: bytes) -> Any:
        sizes.append(len(body))
        return load(body)

    monkeypatch.setattr(yaml_document, "load", measured)
    assert len(manifests.read(b"a: 1\n---\n" * 100)) == 101
    # Not with as many empty lines as there are before it.
    assert max(sizes) < 20
