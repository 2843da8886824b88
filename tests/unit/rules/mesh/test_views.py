# SPDX-License-Identifier: Apache-2.0
"""What is read of objects: what counts is there, what does not is dropped, and null means the default."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from handfast.rules.mesh import views

IDENTITY = {"name": "LINKERD2_PROXY_LOCAL_IDENTITY", "value": "x"}


def pod(document: dict[str, Any]) -> views.Pod:
    return msgspec.json.decode(json.dumps(document), type=views.Pod)


def test_annotations_of_others_are_dropped():
    read = pod({"metadata": {"annotations": {"linkerd.io/identity": "enabled", "huge": "x" * 1000}}})
    assert read.metadata.annotations == {"linkerd.io/identity": "enabled"}
    assert (read.metadata.annotation("linkerd.io/identity"), read.metadata.annotation("huge")) == ("enabled", "")
    assert pod({"metadata": {"annotations": {"huge": "x"}}}).metadata.annotations is None


def test_variables_of_others_are_dropped():
    read = pod({"spec": {"containers": [{"name": "c", "env": [{"name": "HUGE", "value": "x" * 1000}, IDENTITY]}]}})
    (container,) = read.spec.containers or ()
    assert [row.name for row in container.env or ()] == ["LINKERD2_PROXY_LOCAL_IDENTITY"]
    assert (container.variable("LINKERD2_PROXY_LOCAL_IDENTITY"), container.variable("HUGE")) == ("x", "")


def test_the_proxy_is_an_init_container_or_a_container():
    proxy = {"name": "linkerd-proxy"}
    for key in ("initContainers", "containers"):
        found = pod({"spec": {key: [{"name": "c"}, proxy]}}).proxy
        assert found is not None
    assert pod({"spec": {"containers": [{"name": "c"}]}}).proxy is None


def test_a_pod_without_anything_has_the_defaults():
    read = pod({"metadata": {"labels": None}, "spec": {}, "status": {"podIPs": None}})
    assert (read.account, read.ips, read.ended, read.metadata.label("a")) == ("default", (), False, "")


def test_addresses_are_all_of_them_or_the_one():
    many = {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "2001:db8::1"}]}
    assert pod({"status": many}).ips == ("10.0.0.1", "2001:db8::1")
    assert pod({"status": {"podIP": "10.0.0.1"}}).ips == ("10.0.0.1",)


def test_a_headless_service_has_no_address():
    def ips(**spec: Any) -> tuple[str, ...]:
        return msgspec.convert({"spec": spec}, views.Service).ips

    assert ips(clusterIP="None", clusterIPs=["None"]) == ips(type="ExternalName") == ()
    assert ips(clusterIP="10.96.0.1") == ("10.96.0.1",)
    assert ips(clusterIP="10.96.0.1", clusterIPs=["10.96.0.1", "fd00::1"]) == ("10.96.0.1", "fd00::1")


def test_a_name_elsewhere_is_told_apart():
    assert msgspec.convert({"spec": {"type": "ExternalName"}}, views.Service).is_external
    assert not msgspec.convert({"spec": {}}, views.Service).is_external


def test_a_slice_names_its_service():
    labelled = {"metadata": {"labels": {"kubernetes.io/service-name": "cart"}}}
    assert msgspec.convert(labelled, views.Slice).service == "cart"


def test_arguments_are_kept_of_the_container_that_redirects_alone():
    rows = [{"name": name, "args": ["--a", "1", "--b"]} for name in ("linkerd-init", "app")]
    init, app = pod({"spec": {"containers": rows}}).spec.containers or ()
    assert [init.argument(flag) for flag in ("--a", "--b", "--c")] == ["1", "", ""]
    assert app.args is None


def test_nulls_that_the_api_server_stores_hide_no_object():
    read = pod({"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": None}]}})
    assert read.ips == ("10.0.0.1",)
    reference = {"kind": None, "namespace": None, "name": None, "uid": None}
    document = {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], "targetRef": reference}]}
    item = msgspec.json.decode(json.dumps(document), type=views.Slice)
    assert item.endpoints
    assert item.endpoints[0].target_ref == views.TargetRef()
