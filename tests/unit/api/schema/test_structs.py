# SPDX-License-Identifier: Apache-2.0
"""Unknown fields are named by path, the first wrong type in Go's words; what Kubernetes accepts is accepted."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from handfast import errors
from handfast.api.schema import structs

CRD = "apiextensions.v1.CustomResourceDefinition"


def pod(container: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{}, container]}}


def crd(schema: Any) -> dict[str, Any]:
    return {"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}}


@pytest.mark.parametrize(
    ("message", "document"),
    [
        ("core.v1.Pod", pod({"name": "c", "resources": {"limits": {"cpu": 1, "memory": "1Gi", "x": 0.5}}})),
        ("core.v1.Pod", pod({"livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 3}})),
        ("core.v1.Pod", pod({"livenessProbe": {"httpGet": {"port": 80}}})),
        ("core.v1.Pod", pod({"name": None, "args": None, "env": None, "resources": {"limits": None}})),
        ("core.v1.Pod", {"metadata": {"creationTimestamp": None, "managedFields": [{"fieldsV1": {"f:x": {}}}]}}),
        ("core.v1.Pod", {"metadata": {"creationTimestamp": "2024-02-29T00:00:00+01:00"}}),
        ("core.v1.Secret", {"data": {"a": "YQ=="}, "stringData": {"b": "x"}, "immutable": True}),
        ("core.v1.Secret", {"data": {"a": "Y\nQ=\n=\n"}}),
        ("coordination.v1.Lease", {"spec": {"renewTime": "2024-01-01T00:00:00.000000Z"}}),
        ("certificates.v1.CertificateSigningRequest", {"spec": {"extra": {"a": ["b"]}, "request": "YQ=="}}),
        ("core.v1.PodList", {"apiVersion": "v1", "kind": "PodList", "items": [pod({})]}),
        (CRD, crd({"default": [1, {}], "items": {"type": "string"}, "additionalProperties": False, "maximum": 1.5})),
        (
            CRD,
            crd({"items": [{}, {}], "additionalProperties": {}, "dependencies": {"a": ["b"], "c": {}}, "maximum": 2}),
        ),
        (CRD, crd({"enum": ["a", 1, None], "x-kubernetes-int-or-string": True, "$ref": "x"})),
    ],
)
def test_right_documents_have_no_findings(message, document):
    assert structs.check(message, document) == structs.Findings()
    assert structs.walk(message, document) == structs.Findings()


@pytest.mark.parametrize(
    ("message", "document", "unknown"),
    [
        (
            "core.v1.Pod",
            pod({"foo": 1, "env": [{"bar": 1}]}),
            ["spec.containers[1].foo", "spec.containers[1].env[0].bar"],
        ),
        ("core.v1.ConfigMap", {"Data": {}, "x": None}, ["Data", "x"]),
        ("core.v1.PodSpec", {"kind": "x"}, ["kind"]),
        (CRD, crd({"properties": {"a.b": {"foo": 1}}}), ["spec.versions[0].schema.openAPIV3Schema.properties.a.b.foo"]),
        ("core.v1.Volume", {"volumeSource": {}}, ["volumeSource"]),
    ],
)
def test_unknown_fields(message, document, unknown):
    findings = structs.check(message, document)
    assert (findings.unknown, findings.type_error, findings.nulls) == (tuple(unknown), None, ())
    structs.drop_unknown(findings)
    assert structs.check(message, document) == structs.Findings()


class Unopened(list[Any]):
    """A value that nobody may look into."""

    def __iter__(self) -> NoReturn:
        raise AssertionError("somebody looked")


def test_unknown_fields_are_dropped_and_nothing_else():
    document = {
        "metadata": {"name": "a", "labels": {"colour": "x"}, "managedFields": [{"fieldsV1": {"f:odd": {}}, "odd": 1}]},
        "odd": Unopened([[]]),
        "spec": {"containers": [{"name": "c", "odd": {"deep": 1}}, None], "hostNetwork": None},
    }
    findings = structs.check("core.v1.Pod", document)
    assert findings.unknown == ("metadata.managedFields[0].odd", "odd", "spec.containers[0].odd")
    structs.settle_nulls(findings)
    structs.drop_unknown(findings)
    assert document == {
        "metadata": {"name": "a", "labels": {"colour": "x"}, "managedFields": [{"fieldsV1": {"f:odd": {}}}]},
        "spec": {"containers": [{"name": "c"}, {}], "hostNetwork": None},
    }


def test_what_is_free_form_is_kept():
    free = {"any": [{"thing": None}]}
    document = crd({"default": free, "example": free, "enum": [free], "properties": {"odd": {"odd": 1}}, "odd": free})
    structs.drop_unknown(structs.check(CRD, document))
    assert document == crd({"default": free, "example": free, "enum": [free], "properties": {"odd": {}}})


def test_more_fields_are_dropped_than_named():
    document = {"metadata": {}, **{f"x{number}": 1 for number in range(1000)}}
    findings = structs.check("core.v1.Pod", document)
    structs.drop_unknown(findings)
    assert (len(findings.unknown), document) == (structs.MAX_UNKNOWN, {"metadata": {}})


@pytest.mark.parametrize(
    ("message", "document", "error"),
    [
        (
            "core.v1.ConfigMap",
            {"data": {"a": 1}},
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            "core.v1.ConfigMap",
            {"data": []},
            "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string",
        ),
        (
            "core.v1.ConfigMap",
            {"kind": 1},
            "json: cannot unmarshal number into Go struct field ConfigMap.kind of type string",
        ),
        (
            "core.v1.ConfigMap",
            {"immutable": "true"},
            "json: cannot unmarshal string into Go struct field ConfigMap.immutable of type bool",
        ),
        (
            "core.v1.ConfigMap",
            {"metadata": "x"},
            "json: cannot unmarshal string into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
        ),
        ("core.v1.ConfigMap", [], "json: cannot unmarshal array into Go value of type v1.ConfigMap"),
        (
            "core.v1.Pod",
            pod({"env": [{"value": True}], "image": 1}),
            "json: cannot unmarshal bool into Go struct field EnvVar.spec.containers.env.value of type string",
        ),
        (
            "core.v1.Pod",
            pod({"env": {}}),
            "json: cannot unmarshal object into Go struct field Container.spec.containers.env of type []v1.EnvVar",
        ),
        (
            "core.v1.Pod",
            pod({"ports": [{"containerPort": 2**31}]}),
            (
                "json: cannot unmarshal number 2147483648 into Go struct field "
                "ContainerPort.spec.containers.ports.containerPort of type int32"
            ),
        ),
        (
            "core.v1.Pod",
            {"spec": {"activeDeadlineSeconds": -(2**63) - 1}},
            (
                "json: cannot unmarshal number -9223372036854775809 into Go struct field "
                "PodSpec.spec.activeDeadlineSeconds of type int64"
            ),
        ),
        (
            "core.v1.Pod",
            {"spec": {"activeDeadlineSeconds": 1.0}},
            "json: cannot unmarshal number 1.0 into Go struct field PodSpec.spec.activeDeadlineSeconds of type int64",
        ),
        (
            "core.v1.Pod",
            {"spec": {"activeDeadlineSeconds": True}},
            "json: cannot unmarshal bool into Go struct field PodSpec.spec.activeDeadlineSeconds of type int64",
        ),
        (
            "core.v1.Pod",
            pod({"livenessProbe": {"httpGet": {"port": 1.5}}}),
            (
                "json: cannot unmarshal number 1.5 into Go struct field "
                "HTTPGetAction.spec.containers.livenessProbe.httpGet.port of type int32"
            ),
        ),
        (
            "core.v1.Pod",
            {"metadata": {"creationTimestamp": 1}},
            "json: cannot unmarshal number into Go value of type string",
        ),
        (
            "core.v1.Pod",
            {"metadata": {"creationTimestamp": "now"}},
            'parsing time "now" as "2006-01-02T15:04:05Z07:00": the text is not of that form',
        ),
        (
            "coordination.v1.Lease",
            {"spec": {"renewTime": "2024-01-01T00:00:00Z"}},
            'parsing time "2024-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": the text is not of that form',
        ),
        ("core.v1.Secret", {"data": {"a": "a$"}}, "illegal base64 data at input byte 1"),
        (
            "core.v1.Secret",
            {"data": {"a": 1}},
            "json: cannot unmarshal number into Go struct field Secret.data of type []uint8",
        ),
        (
            "certificates.v1.CertificateSigningRequest",
            {"spec": {"extra": {"a": "b"}}},
            "json: cannot unmarshal string into Go struct field CertificateSigningRequestSpec.spec.extra of type []string",
        ),
        (
            CRD,
            crd({"maximum": "1"}),
            (
                "json: cannot unmarshal string into Go struct field "
                "JSONSchemaProps.spec.versions.schema.openAPIV3Schema.maximum of type float64"
            ),
        ),
        (
            CRD,
            crd({"maximum": 10**309}),
            (
                "json: cannot unmarshal number 10000000000000000000000000000000 into Go struct field "
                "JSONSchemaProps.spec.versions.schema.openAPIV3Schema.maximum of type float64"
            ),
        ),
        (CRD, crd({"additionalProperties": 1}), "boolean or JSON schema expected"),
        (
            CRD,
            crd({"items": 1}),
            (
                "json: cannot unmarshal number into Go struct field "
                "JSONSchemaProps.spec.versions.schema.openAPIV3Schema.items of type []v1.JSONSchemaProps"
            ),
        ),
    ],
)
def test_type_errors(message, document, error):
    assert structs.check(message, document).type_error == error


@pytest.mark.parametrize("value", ["lots", True, {}, []])
def test_what_is_no_quantity_is_a_type_error(value):
    error = structs.check("core.v1.Pod", pod({"resources": {"limits": {"cpu": value}}})).type_error
    assert error is not None
    assert error.startswith("quantities must match the regular expression")


def test_unknown_fields_and_a_type_error_together():
    findings = structs.check("core.v1.ConfigMap", {"x": 1, "data": {"a": 1}, "y": 1})
    assert findings.unknown == ("x", "y")
    assert findings.type_error is not None


def test_findings_are_bounded():
    assert len(structs.check("core.v1.Pod", {str(number): 1 for number in range(1000)}).unknown) == structs.MAX_UNKNOWN
    for message, document in (
        ("core.v1.ConfigMap", {"immutable": 10**4000}),
        ("core.v1.Pod", {"spec": {"activeDeadlineSeconds": 10**900}}),
    ):
        assert 0 < len(structs.check(message, document).type_error or "") < 200


def test_unknown_message_is_misuse():
    with pytest.raises(errors.Misuse):
        structs.check("core.v1.Nothing", {})
    with pytest.raises(errors.Misuse):
        structs.walk("core.v1.Nothing", {})


@pytest.mark.parametrize(
    ("message", "document", "settled"),
    [
        (
            "core.v1.Pod",
            {"metadata": {"labels": {"a": None, "b": "c"}, "ownerReferences": [None], "finalizers": ["x/y", None]}},
            {"metadata": {"labels": {"a": "", "b": "c"}, "ownerReferences": [{}], "finalizers": ["x/y", ""]}},
        ),
        (
            "core.v1.Pod",
            pod({"env": [None, {}, None], "resources": {"limits": {"cpu": None}}}),
            pod({"env": [{}, {}, {}], "resources": {"limits": {"cpu": "0"}}}),
        ),
        (
            "core.v1.Pod",
            {"spec": {"securityContext": {"supplementalGroups": [1, None]}}},
            {"spec": {"securityContext": {"supplementalGroups": [1, 0]}}},
        ),
        ("core.v1.Secret", {"data": {"a": None}}, {"data": {"a": ""}}),
        (
            "certificates.v1.CertificateSigningRequest",
            {"spec": {"extra": {"a": ["b", None], "c": None}}},
            {"spec": {"extra": {"a": ["b", ""], "c": []}}},
        ),
        (
            CRD,
            crd({"enum": [None], "required": [None], "properties": {"a": None}, "dependencies": {"b": None}}),
            crd({"enum": [None], "required": [""], "properties": {"a": {}}, "dependencies": {"b": {}}}),
        ),
    ],
)
def test_nulls_inside_lists_and_maps_become_zero_values(message, document, settled):
    findings = structs.check(message, document)
    assert findings == structs.walk(message, document)
    assert (findings.unknown, findings.type_error) == ((), None)
    structs.settle_nulls(findings)
    assert document == settled
    assert structs.check(message, document) == structs.Findings()


def test_each_null_becomes_a_value_of_its_own():
    document = pod({"env": [None, None]})
    structs.settle_nulls(structs.check("core.v1.Pod", document))
    first, second = document["spec"]["containers"][1]["env"]
    assert first is not second


def test_a_wrong_type_ends_the_search() -> None:
    """The document is refused for it: the rest of a long list is not looked at."""
    containers = [{"name": 1}, {"odd": 1}, {"name": 2}]
    findings = structs.check("core.v1.Pod", {"spec": {"containers": containers}})
    assert findings.type_error is not None
    assert "spec.containers.name of type string" in findings.type_error
    assert findings.unknown == ()


def test_a_type_can_be_made_beforehand() -> None:
    structs._TYPES.pop("core.v1.Binding", None)
    structs.ready("core.v1.Binding")
    assert structs._TYPES["core.v1.Binding"] is not None
