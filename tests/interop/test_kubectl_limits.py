# SPDX-License-Identifier: Apache-2.0
"""kubectl and what limits a namespace: quotas, limit ranges, disruption budgets; and kinds that stock tools assume."""

from __future__ import annotations

import concurrent.futures
import json

import pytest
from kubernetes import client

from tests.interop import running

pytestmark = [pytest.mark.slow, pytest.mark.kubectl]

TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "nginx"}]}}


def _used(kubectl: running.Kubectl, quota: str, **amounts: str) -> None:
    """Wait until a quota says that so much is used."""
    wanted = {name.replace("__", "/").replace("_", "."): amount for name, amount in amounts.items()}

    def says() -> bool:
        used: dict[str, str] = kubectl.json("get", "quota", quota).get("status", {}).get("used", {})
        return wanted.items() <= used.items()

    running.eventually(says, f"{quota} has {wanted}")


def test_apply_prune_removes_what_is_no_longer_there(kubectl, tmp_path):
    for name in ("one", "two"):
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"set": "a"}}}
        (tmp_path / f"{name}.json").write_text(json.dumps(manifest))
    kubectl("apply", "-f", str(tmp_path))
    (tmp_path / "two.json").unlink()
    pruned = kubectl("apply", "--prune", "-l", "set=a", "-f", str(tmp_path)).out
    assert "configmap/two pruned" in pruned
    assert kubectl("get", "cm", "-l", "set=a", "-o", "name").lines == ["configmap/one"]


def test_kubectl_creates_each_of_these_kinds(kubectl, unique):
    kubectl("create", "ingress", "web", "--rule=a.example.com/*=web:80,tls=cert", "--class=nginx")
    kubectl("create", "pdb", "web", "--selector=app=web", "--min-available=1")
    kubectl("create", "priorityclass", unique, "--value=5")
    kubectl("create", "deployment", "web", "--image=nginx")
    kubectl("autoscale", "deployment", "web", "--max=3")
    assert kubectl("get", "ing,pdb,hpa").lines[0].split()[:3] == ["NAME", "CLASS", "HOSTS"]
    for name in ("ingress/web", "pdb/web", f"priorityclass/{unique}", "hpa/web"):
        assert kubectl("describe", name).out


def test_a_quota_counts_what_is_there_and_refuses_what_is_too_much(kubectl):
    kubectl("create", "configmap", "before")
    kubectl("create", "quota", "few", "--hard=configmaps=3,count/secrets=1,services.nodeports=1")
    # The one that every namespace has, and the one from before.
    _used(kubectl, "few", configmaps="2", count__secrets="0", services_nodeports="0")
    kubectl("create", "configmap", "third")
    _used(kubectl, "few", configmaps="3")
    refused = kubectl.fails("create", "configmap", "fourth")
    assert (
        'configmaps "fourth" is forbidden: exceeded quota: few, requested: configmaps=1, used: configmaps=3, '
        "limited: configmaps=3" in refused
    )
    kubectl("delete", "configmap", "before")
    _used(kubectl, "few", configmaps="2")
    kubectl("create", "configmap", "fourth")
    kubectl("create", "service", "nodeport", "a", "--tcp=80")
    assert "exceeded quota: few, requested: services.nodeports=1" in kubectl.fails(
        "create", "service", "nodeport", "b", "--tcp=80"
    )


def test_of_many_at_once_as_many_get_in_as_fit(kubectl, core, namespace):
    kubectl("create", "quota", "few", "--hard=count/secrets=5")
    _used(kubectl, "few", count__secrets="0")

    def create(number: int) -> bool:
        try:
            core.create_namespaced_secret(namespace, {"metadata": {"name": f"s{number}"}})
        except client.ApiException as error:
            return bool(error.status != 403)
        return True

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(create, range(20))) == 5
    assert len(kubectl("get", "secrets", "-o", "name").lines) == 5
    _used(kubectl, "few", count__secrets="5")


def test_a_limit_range_fills_in_and_refuses(kubectl):
    limits = [{"type": "Container", "max": {"cpu": "2"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}}]
    document = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "sizes"}, "spec": {"limits": limits}}
    kubectl("create", "-f", "-", stdin=json.dumps(document))
    kubectl("run", "usual", "--image=nginx")
    pod = kubectl.json("get", "pod", "usual")
    assert pod["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}}
    assert pod["status"]["qosClass"] == "Burstable"
    large = {"name": "main", "image": "nginx", "resources": {"limits": {"cpu": "3"}}}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "large"}, "spec": {"containers": [large]}}
    assert "maximum cpu usage per Container is 2, but limit is 3" in kubectl.fails(
        "create", "-f", "-", stdin=json.dumps(document)
    )


def _running(kubectl: running.Kubectl, name: str) -> None:
    """A Pod whose kubelet would have it ready."""
    document = {"apiVersion": "v1", "kind": "Pod", **TEMPLATE, "metadata": {"name": name, "labels": {"app": "web"}}}
    kubectl("create", "-f", "-", stdin=json.dumps(document))
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    kubectl("patch", "pod", name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))


def test_an_eviction_asks_the_budget(kubectl, core, namespace):
    kubectl("create", "pdb", "web", "--selector=app=web", "--min-available=1")
    for name in ("a", "b"):
        _running(kubectl, name)
    running.eventually(
        lambda: kubectl.json("get", "pdb", "web").get("status", {}).get("disruptionsAllowed") == 1, "one may go"
    )

    def eviction(name: str) -> str:
        metadata = {"name": name, "namespace": namespace}
        return json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})

    at = f"/api/v1/namespaces/{namespace}/pods"
    kubectl("create", "--raw", f"{at}/a/eviction", "-f", "-", stdin=eviction("a"))
    running.eventually(lambda: kubectl("get", "pods", "-o", "name").lines == ["pod/b"], "a is gone")
    with pytest.raises(client.ApiException, match="needs 1 healthy pods and has 1 currently") as caught:
        core.create_namespaced_pod_eviction("b", namespace, json.loads(eviction("b")))
    assert caught.value.status == 429
    kubectl("delete", "pdb", "web")
    kubectl("create", "--raw", f"{at}/b/eviction", "-f", "-", stdin=eviction("b"))


def test_what_the_server_shows_of_itself_can_be_read_and_not_written(kubectl):
    assert kubectl("get", "cs", "--no-headers").lines[0].split()[:2] == ["store", "Healthy"]
    services = kubectl("get", "apiservices", "--no-headers").lines
    assert {"v1.", "v1.apps", "v2.autoscaling", "v1.apiregistration.k8s.io"} <= {line.split()[0] for line in services}
    assert all(line.split()[1:3] == ["Local", "True"] for line in services)
    kubectl("wait", "--for=condition=Available", "apiservice", "v1.apps")
    level = kubectl.json("get", "prioritylevelconfiguration", "user")
    assert level["metadata"]["annotations"]["handfast.dev/requests-per-second"] == "400"
    assert kubectl("get", "flowschemas", "-o", "name", "--field-selector=metadata.name=node").lines == [
        "flowschema.flowcontrol.apiserver.k8s.io/node"
    ]
    assert "can be read only" in kubectl.fails("delete", "flowschema", "node")
    assert '"nobody" not found' in kubectl.fails("get", "flowschema", "nobody")
