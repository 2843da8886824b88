# SPDX-License-Identifier: Apache-2.0
"""What a write does between its waits. Whole writes are in `tests/scenarios`."""

from __future__ import annotations

from typing import Any, cast

import pytest

from handfast.api import kinds, status
from handfast.apiserver import calls, request
from handfast.apiserver.verbs import write_steps
from tests.properties import sample_documents


class Sent:
    """As much of a call as is looked at."""

    def __init__(self, media: str = "", agent: str = "", verb: str = "patch", **query: str) -> None:
        self._headers = {"Content-Type": media, "User-Agent": agent}
        self.info = request.RequestInfo(verb=verb, path="/", query=query)

    def header(self, name: str) -> str:
        return self._headers[name]


def sent(*words: str, **query: str) -> calls.Call:
    return cast("calls.Call", Sent(*words, **query))


@pytest.mark.parametrize(
    ("media", "apply"),
    [
        ("application/apply-patch+yaml", True),
        ("Application/Apply-Patch+YAML", True),
        (" application/apply-patch+yaml; charset=utf-8", True),
        ("application/apply-patch+cbor", False),
        ("application/merge-patch+json", False),
        ("", False),
    ],
)
def test_an_apply_is_known_by_its_media_type_however_it_is_written(media, apply):
    assert write_steps._is_apply(sent(media)) is apply


@pytest.mark.parametrize(
    ("agent", "query", "manager"),
    [
        ("kubectl/v1.36.3 (linux/amd64)", {}, "kubectl"),
        ("kubectl/v1.36.3", {"fieldManager": "argo cd"}, "argo cd"),
        ("", {}, "unknown"),
        ("a" * 200, {}, "a" * 128),
        ("a\tb\x7fc/1", {}, "abc"),
        ("x", {"fieldManager": "m" * 128}, "m" * 128),
    ],
)
def test_whose_a_write_is(agent, query, manager):
    assert write_steps.field_manager(sent("", agent, **query)) == manager


@pytest.mark.parametrize(
    ("verb", "options"), [("create", "CreateOptions"), ("update", "UpdateOptions"), ("patch", "PatchOptions")]
)
@pytest.mark.parametrize(
    ("manager", "says"),
    [
        ("m" * 129, "fieldManager: Too long: may not be more than 128 bytes"),
        ("ü" * 65, "fieldManager: Too long: may not be more than 128 bytes"),
        ("a\x01b", 'fieldManager: Invalid value: "a\\x01b": invalid character U+0001 (at position 1)'),
    ],
)
def test_a_field_manager_that_cannot_be(verb, options, manager, says):
    with pytest.raises(status.StatusError) as refused:
        write_steps.field_manager(sent("", "", verb, fieldManager=manager))
    assert refused.value.code == 422
    assert refused.value.message == f'{options}.meta.k8s.io "" is invalid: {says}'


def kind(group: str, plural: str) -> kinds.Kind:
    return sample_documents.kind(group, plural)


@pytest.mark.parametrize(
    ("resource", "subresource", "ignored"),
    [
        (("apps", "deployments"), "", {"status"}),
        (("apps", "deployments"), "status", {"spec", "metadata"}),
        (("apps", "deployments"), "scale", set()),
        (("", "configmaps"), "", set()),
        (("certificates.k8s.io", "certificatesigningrequests"), "", {"status", "spec"}),
        (("certificates.k8s.io", "certificatesigningrequests"), "approval", {"spec", "metadata"}),
    ],
)
def test_what_nobody_gets_by_a_write(resource: Any, subresource: str, ignored: Any):
    names = ("apiVersion", "kind", "metadata", "spec", "status")
    found = write_steps.ignored_fields(kind(*resource), subresource, names)
    assert set(found) == ignored
