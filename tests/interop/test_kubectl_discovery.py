# SPDX-License-Identifier: Apache-2.0
"""kubectl api-resources, api-versions, explain, cluster-info and version: what the server says about itself."""

from __future__ import annotations

import re

import pytest

from tests.interop import running

pytestmark = [pytest.mark.slow, pytest.mark.kubectl]


def test_api_resources(kubectl):
    rows = {line.split()[0]: line.split()[1:] for line in kubectl("api-resources", "--no-headers").lines}
    assert rows["configmaps"] == ["cm", "v1", "true", "ConfigMap"]
    assert rows["deployments"] == ["deploy", "apps/v1", "true", "Deployment"]
    assert rows["nodes"] == ["no", "v1", "false", "Node"]
    assert rows["leases"] == ["coordination.k8s.io/v1", "true", "Lease"]
    apps = kubectl("api-resources", "--api-group=apps", "--verbs=list,watch", "-o", "name").lines
    assert apps == [
        f"{each}.apps" for each in ("controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets")
    ]
    assert "namespaces" not in kubectl("api-resources", "--namespaced=true", "-o", "name").lines


def test_api_versions(kubectl):
    versions = kubectl("api-versions").lines
    assert versions == sorted(versions)
    assert {"v1", "apps/v1", "batch/v1", "rbac.authorization.k8s.io/v1", "certificates.k8s.io/v1"} <= set(versions)


def test_the_old_form_of_discovery_says_the_same(kubectl):
    old = kubectl("get", "--raw", "/apis").json()
    assert old["kind"] == "APIGroupList"
    versions = {version["groupVersion"] for group in old["groups"] for version in group["versions"]}
    assert versions | {"v1"} == set(kubectl("api-versions").lines)
    for group in ("apps", "rbac.authorization.k8s.io"):
        resources = kubectl("get", "--raw", f"/apis/{group}/v1").json()["resources"]
        listed = kubectl("api-resources", f"--api-group={group}", "-o", "name").lines
        assert sorted(f"{row['name']}.{group}" for row in resources if "/" not in row["name"]) == sorted(listed)


def test_explain_shows_fields_of_kinds_and_refuses_others(kubectl):
    kubectl.needs(27, "explaining by OpenAPI v3")
    shown = kubectl("explain", "pod").out
    assert re.search(r"KIND: +Pod\nVERSION: +v1\n", shown)
    assert re.search(r"spec\t<\S*PodSpec\S*>|spec\t<Object>", shown)
    nested = kubectl("explain", "deployment.spec.template.spec.containers.env.valueFrom").out
    assert "configMapKeyRef" in nested
    recursive = kubectl("explain", "secret", "--recursive").out
    assert re.search(r"ownerReferences\s+<\[\]\S*>\n\s+apiVersion\s+<string>", recursive)
    assert 'field "nothing" does not exist' in kubectl.fails("explain", "pod.nothing")
    assert "unicorn" in kubectl.fails("explain", "unicorn")


def test_cluster_info_and_version(kubectl, control_plane: running.ControlPlane):
    assert f"is running at {control_plane.endpoints()['apiserver']}" in re.sub(
        r"\x1b\[[0-9;]*m", "", kubectl("cluster-info").out
    )
    server = kubectl("version", "-o", "json").json()["serverVersion"]
    assert re.fullmatch(r"v1\.\d+\.\d+\+handfast-\S+", server["gitVersion"])
    assert server["major"] == "1"


def test_requests_of_a_table_as_the_client_makes_them(kubectl):
    # -v=8 shows headers and bodies: kubectl asks for a Table and gets one.
    log = kubectl("get", "configmaps", "-v=8").err
    assert "as=Table;v=v1;g=meta.k8s.io" in log
    assert '"kind":"Table","apiVersion":"meta.k8s.io/v1"' in log.replace("\\", "")
    assert "Audit-Id" in log
