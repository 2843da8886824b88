# SPDX-License-Identifier: Apache-2.0
"""Whether a Pod gets a proxy, and whether that has an identity: the tables of Linkerd's own tests, and the seed's words."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.rules.mesh import injectable, settings
from handfast.rules.mesh.injectable import Facts, Reason
from tests.unit.rules.mesh import pods

ON, OFF = "enabled", "disabled"


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (Facts(pod=ON), ()),
        (Facts(pod=ON, host_network=True), (Reason.HOST_NETWORK,)),
        (Facts(pod=ON, sidecar=True), (Reason.SIDECAR,)),
        (Facts(pod=ON, supported=False), (Reason.UNSUPPORTED,)),
        (Facts(pod=ON, supported=False, host_network=True), (Reason.HOST_NETWORK, Reason.UNSUPPORTED)),
        (Facts(namespace=ON, pod=OFF, host_network=True), (Reason.HOST_NETWORK, Reason.DISABLED)),
        (
            Facts(namespace=ON, pod=OFF, host_network=True, supported=False),
            (Reason.HOST_NETWORK, Reason.UNSUPPORTED, Reason.DISABLED),
        ),
        (
            Facts(host_network=True, supported=False),
            (Reason.HOST_NETWORK, Reason.UNSUPPORTED, Reason.ABSENT),
        ),
        (Facts(host_network=True, sidecar=True), (Reason.HOST_NETWORK, Reason.SIDECAR, Reason.ABSENT)),
        (Facts(pod=ON, token=False), (Reason.NO_TOKEN,)),
    ],
)
def test_all_reasons_are_told_in_order(known, expected):
    asked = Facts(
        pod=known.pod,
        namespace=known.namespace,
        host_network=known.host_network,
        sidecar=known.sidecar,
        supported=known.supported,
        token=known.token,
        by_request=True,
    )
    assert injectable.reasons(asked) == expected


@pytest.mark.parametrize(
    ("namespace", "pod", "expected"),
    [
        (ON, ON, ()),
        (ON, "", ()),
        (ON, OFF, (Reason.DISABLED,)),
        (OFF, ON, ()),
        (OFF, "", (Reason.ABSENT,)),
        (OFF, OFF, (Reason.ABSENT,)),
        ("", ON, ()),
        ("", "", (Reason.ABSENT,)),
        ("", OFF, (Reason.ABSENT,)),
        ("ingress", "", ()),
        ("", "ingress", ()),
    ],
)
def test_the_webhook_goes_by_namespace_and_pod(namespace, pod, expected):
    assert injectable.reasons(Facts(namespace=namespace, pod=pod, by_request=True)) == expected


@pytest.mark.parametrize(("pod", "expected"), [(ON, ()), ("", ()), (OFF, (Reason.DISABLED,))])
def test_a_person_who_names_a_manifest_means_it(pod, expected):
    assert injectable.reasons(Facts(pod=pod)) == expected


def test_a_value_that_is_not_known_is_a_reason_of_its_own():
    assert injectable.reasons(Facts(namespace="on", pod="on", by_request=True)) == (Reason.NAMESPACE_VALUE,)
    assert injectable.reasons(Facts(pod="on", by_request=True)) == (Reason.POD_VALUE,)
    assert injectable.reasons(Facts(pod="on")) == (Reason.POD_VALUE,)
    assert set(injectable.WORDS) == set(Reason)


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"name": "linkerd-proxy"}]},
        {"containers": [{"name": "istio-proxy"}]},
        {"initContainers": [{"name": "linkerd-init"}]},
        {"initContainers": [{"name": "a", "image": "cr.l5d.io/linkerd/proxy-init:v2"}]},
        {"containers": [{"name": "a", "image": "gcr.io/istio-release/proxyv2:1"}]},
    ],
)
def test_a_proxy_of_anybodys_is_known(spec):
    assert injectable.facts(pods.workload(pods.pod(**spec))).sidecar


def test_facts_are_those_of_the_pod():
    known = injectable.facts(
        pods.workload(pods.pod(hostNetwork=True, automountServiceAccountToken=False)), namespace=ON, own_token=False
    )
    assert known == Facts(namespace=ON, host_network=True, token=False)
    template = {"metadata": {"annotations": {injectable.INJECT: OFF}}, "spec": pods.pod()["spec"]}
    assert injectable.facts(pods.workload(pods.deployment(template)), by_request=True) == Facts(
        pod=OFF, by_request=True
    )


def annotated(value: str) -> dict[str, Any]:
    return pods.deployment({"metadata": {"annotations": {injectable.IDENTITY: value}}, "spec": pods.pod()["spec"]})


def test_without_a_value_the_default_counts():
    found = pods.workload(pods.deployment())
    assert injectable.has_identity(found, settings.Settings())
    assert not injectable.has_identity(found, settings.Settings(default_enabled=False))


def test_a_value_stands_over_the_default():
    assert injectable.has_identity(pods.workload(annotated(ON)), settings.Settings(default_enabled=False))
    assert not injectable.has_identity(pods.workload(annotated(OFF)), settings.Settings())
    with pytest.raises(
        injectable.BadAnnotation, match=r"deployment/web: spec.template.metadata.annotations: .* is 'on'"
    ):
        injectable.has_identity(pods.workload(annotated("on")), settings.Settings())


def test_enabled_without_identities_in_the_control_plane_is_refused():
    none = settings.Settings(enabled=False, default_enabled=False)
    with pytest.raises(injectable.NoIdentities):
        injectable.has_identity(pods.workload(annotated(ON)), none)
    assert not injectable.has_identity(pods.workload(annotated(OFF)), none)


def test_enabled_on_anything_but_a_pod_template_is_refused():
    service = {"kind": "Service", "metadata": {"name": "web", "annotations": {injectable.IDENTITY: ON}}}
    with pytest.raises(injectable.BadAnnotation, match=r"service/web has linkerd.io/identity: enabled"):
        injectable.require_none(service)
    with pytest.raises(injectable.BadAnnotation, match="deployment/web"):
        injectable.has_identity(
            pods.workload(pods.deployment(annotations={injectable.IDENTITY: ON})), settings.Settings()
        )
    job = {"metadata": {"annotations": {injectable.IDENTITY: ON}}, "spec": {"template": {"spec": pods.pod()["spec"]}}}
    with pytest.raises(injectable.BadAnnotation, match="cronjob has"):
        injectable.has_identity(
            pods.workload({"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"jobTemplate": job}}),
            settings.Settings(),
        )
    injectable.require_none({"kind": "Service", "metadata": {"annotations": {injectable.IDENTITY: OFF}}})
