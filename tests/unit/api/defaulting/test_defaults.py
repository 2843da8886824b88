# SPDX-License-Identifier: Apache-2.0
"""Defaults kind by kind."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.api.defaulting import defaults
from tests.properties import sample_documents

RBAC = "rbac.authorization.k8s.io"


def _applied(group, plural, document):
    defaults.apply(sample_documents.kind(group, plural), document)
    return document


def test_a_kind_without_defaults_is_left_alone():
    assert _applied("", "configmaps", {"data": None}) == {"data": None}


def test_a_custom_resource_is_left_alone():
    kind = sample_documents.widget()
    document: dict[str, Any] = {"spec": {}}
    defaults.apply(kind, document)
    assert document == {"spec": {}}


def test_a_namespace_gets_its_name_as_a_label_its_finalizer_and_its_phase():
    assert _applied("", "namespaces", {"metadata": {"name": "a", "labels": {"x": "y"}}}) == {
        "metadata": {"name": "a", "labels": {"x": "y", "kubernetes.io/metadata.name": "a"}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def test_a_namespace_being_deleted_gets_no_finalizer_back():
    document = _applied(
        "", "namespaces", {"metadata": {"deletionTimestamp": "x"}, "spec": {}, "status": {"phase": "Terminating"}}
    )
    assert document["spec"] == {}
    assert document["status"]["phase"] == "Terminating"
    assert "labels" not in document["metadata"]


def test_a_secret_gets_its_type_and_string_data_becomes_data():
    document = {"stringData": {"a": "héllo", "odd": 5}, "data": {"a": "b2xk", "b": "eA=="}}
    assert _applied("", "secrets", document) == {"type": "Opaque", "data": {"a": "aMOpbGxv", "b": "eA=="}}
    assert _applied("", "secrets", {"type": "x/y", "stringData": None}) == {"type": "x/y"}
    assert _applied("", "secrets", {"stringData": {"a": "1"}})["data"] == {"a": "MQ=="}


def test_a_node_gets_its_pod_cidrs_and_what_can_be_allocated():
    document = _applied("", "nodes", {"spec": {"podCIDR": "10.0.0.0/24"}, "status": {"capacity": {"cpu": "1"}}})
    assert document["spec"]["podCIDRs"] == ["10.0.0.0/24"]
    assert document["status"]["allocatable"] == {"cpu": "1"}
    assert _applied("", "nodes", {}) == {"spec": {}, "status": {}}


def test_a_service_gets_its_type_policies_and_ports():
    assert _applied("", "services", {"spec": {"ports": [{"port": 80}]}}) == {
        "spec": {
            "type": "ClusterIP",
            "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster",
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        },
        "status": {"loadBalancer": {}},
    }


def test_services_of_other_types():
    balancer = _applied("", "services", {"spec": {"type": "LoadBalancer", "sessionAffinity": "ClientIP"}})["spec"]
    assert balancer["externalTrafficPolicy"] == "Cluster"
    assert balancer["allocateLoadBalancerNodePorts"] is True
    assert balancer["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}
    headless = _applied("", "services", {"spec": {"clusterIP": "None"}})["spec"]
    assert (headless["clusterIP"], headless["clusterIPs"]) == ("None", ["None"])
    external = _applied("", "services", {"spec": {"type": "ExternalName", "externalName": "a.b"}})["spec"]
    assert external == {"type": "ExternalName", "externalName": "a.b", "sessionAffinity": "None"}


def test_endpoints_and_slices():
    document = _applied("", "endpoints", {"subsets": [{"ports": [{"port": 1}]}]})
    assert document["subsets"][0]["ports"] == [{"port": 1, "protocol": "TCP"}]
    document = _applied("discovery.k8s.io", "endpointslices", {"ports": [{"port": 1}]})
    assert document["ports"] == [{"port": 1, "protocol": "TCP", "name": ""}]


def test_volumes_and_claims_get_their_mode_and_phase():
    volume = _applied("", "persistentvolumes", {"spec": {"hostPath": {"path": "/x"}}})
    assert volume == {
        "spec": {
            "hostPath": {"path": "/x", "type": ""},
            "persistentVolumeReclaimPolicy": "Retain",
            "volumeMode": "Filesystem",
        },
        "status": {"phase": "Pending"},
    }
    assert _applied("", "persistentvolumeclaims", {}) == {
        "spec": {"volumeMode": "Filesystem"},
        "status": {"phase": "Pending"},
    }


def test_storage_classes_and_drivers_get_their_policies():
    assert _applied("storage.k8s.io", "storageclasses", {}) == {
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }
    assert _applied("storage.k8s.io", "csidrivers", {})["spec"] == {
        "attachRequired": True,
        "podInfoOnMount": False,
        "storageCapacity": False,
        "requiresRepublish": False,
        "seLinuxMount": False,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "volumeLifecycleModes": ["Persistent"],
    }
    given = {"spec": {"volumeLifecycleModes": ["Ephemeral"]}}
    assert _applied("storage.k8s.io", "csidrivers", given)["spec"]["volumeLifecycleModes"] == ["Ephemeral"]


def test_a_deployment_gets_replicas_strategy_limits_and_a_pod_template():
    document = _applied("apps", "deployments", {"spec": {"template": {"spec": {}}}})
    assert document["spec"].pop("template")["spec"]["dnsPolicy"] == "ClusterFirst"
    assert document["spec"] == {
        "replicas": 1,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    }
    recreate = _applied("apps", "deployments", {"spec": {"replicas": 0, "strategy": {"type": "Recreate"}}})["spec"]
    assert (recreate["replicas"], recreate["strategy"]) == (0, {"type": "Recreate"})


def test_other_workloads():
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    assert _applied("apps", "daemonsets", {})["spec"] == {"updateStrategy": rolling, "revisionHistoryLimit": 10}
    assert _applied("apps", "replicasets", {})["spec"] == {"replicas": 1}
    assert _applied("apps", "statefulsets", {"spec": {"volumeClaimTemplates": [{}]}})["spec"] == {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "revisionHistoryLimit": 10,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "volumeClaimTemplates": [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "spec": {"volumeMode": "Filesystem"},
                "status": {"phase": "Pending"},
            }
        ],
    }


def test_replication_controller_takes_labels_from_its_template():
    template = {"metadata": {"labels": {"a": "b"}}}
    document = _applied("", "replicationcontrollers", {"spec": {"template": template}})
    assert document["metadata"]["labels"] == document["spec"]["selector"] == {"a": "b"}
    assert _applied("", "replicationcontrollers", {}) == {
        "metadata": {},
        "spec": {"replicas": 1},
        "status": {"replicas": 0},
    }


def test_a_job_gets_its_counts_and_labels_and_no_selector_before_it_has_a_uid():
    document = _applied("batch", "jobs", {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}})
    assert document["metadata"]["labels"] == {"a": "b"}
    spec = document["spec"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (1, 1, 6)
    assert (spec["completionMode"], spec["suspend"]) == ("NonIndexed", False)
    assert spec["podReplacementPolicy"] == "TerminatingOrFailed"
    assert "selector" not in spec


def test_a_job_with_choices():
    rules = [{"onPodConditions": [{"type": "X"}]}]
    spec = {"parallelism": 3, "backoffLimitPerIndex": 1, "podFailurePolicy": {"rules": rules}}
    spec = _applied("batch", "jobs", {"spec": spec})["spec"]
    assert "completions" not in spec
    assert (spec["parallelism"], spec["backoffLimit"], spec["podReplacementPolicy"]) == (3, 2**31 - 1, "Failed")
    assert rules[0]["onPodConditions"][0]["status"] == "True"


def test_a_job_selects_its_pods_by_its_uid():
    document = {"metadata": {"uid": "u", "name": "j"}, "spec": {"template": {}}}
    applied = _applied("batch", "jobs", document)
    spec = applied["spec"]
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}
    assert spec["template"]["metadata"]["labels"] == {
        "controller-uid": "u",
        "job-name": "j",
        "batch.kubernetes.io/controller-uid": "u",
        "batch.kubernetes.io/job-name": "j",
    }
    # By these it is found itself, if its author gave its pods no others.
    assert applied["metadata"]["labels"] == spec["template"]["metadata"]["labels"]
    own = {"metadata": {"uid": "u", "name": "j"}, "spec": {"template": {"metadata": {"labels": {"app": "x"}}}}}
    assert _applied("batch", "jobs", own)["metadata"]["labels"] == {"app": "x"}
    assert spec["manualSelector"] is False
    manual = {"metadata": {"uid": "u", "name": "j"}, "spec": {"template": {}, "manualSelector": True}}
    assert "selector" not in _applied("batch", "jobs", manual)["spec"]


def test_cron_job():
    document: dict[str, Any] = {"spec": {"jobTemplate": {"spec": {"template": {"spec": {}}}}}}
    spec = _applied("batch", "cronjobs", document)["spec"]
    assert spec.pop("jobTemplate")["spec"]["template"]["spec"]["restartPolicy"] == "Always"
    assert spec == {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    }


@pytest.mark.parametrize("plural", ["rolebindings", "clusterrolebindings"])
def test_roles_users_and_groups_of_a_binding_get_their_api_group(plural):
    subjects = [{"kind": "User"}, {"kind": "Group", "apiGroup": ""}, {"kind": "ServiceAccount"}]
    document = _applied(RBAC, plural, {"roleRef": {"kind": "Role"}, "subjects": subjects})
    assert document["roleRef"]["apiGroup"] == RBAC
    assert [subject.get("apiGroup") for subject in document["subjects"]] == [RBAC, RBAC, None]


def test_webhooks_get_policies_timeout_and_selectors():
    webhook = {"rules": [{}], "clientConfig": {"service": {}}}
    document = _applied("admissionregistration.k8s.io", "mutatingwebhookconfigurations", {"webhooks": [webhook]})
    assert document["webhooks"][0] == {
        "rules": [{"scope": "*"}],
        "clientConfig": {"service": {"port": 443}},
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "timeoutSeconds": 10,
        "namespaceSelector": {},
        "objectSelector": {},
        "reinvocationPolicy": "Never",
    }
    document = _applied("admissionregistration.k8s.io", "validatingwebhookconfigurations", {"webhooks": [{}]})
    assert "reinvocationPolicy" not in document["webhooks"][0]


def test_a_definition_gets_its_names_and_no_conversion():
    group, plural = "apiextensions.k8s.io", "customresourcedefinitions"
    assert _applied(group, plural, {"spec": {"names": {"kind": "Widget"}}})["spec"] == {
        "names": {"kind": "Widget", "singular": "widget", "listKind": "WidgetList"},
        "conversion": {"strategy": "None"},
    }
    webhook = {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {}}}}}
    conversion = _applied(group, plural, {"spec": webhook})["spec"]["conversion"]
    assert conversion["webhook"]["clientConfig"]["service"] == {"port": 443}


@pytest.mark.parametrize("given", [{}, {"status": None}, {"status": {}}, {"status": {"certificate": "AAAA"}}])
def test_a_certificate_request_has_a_status(given: dict[str, Any]) -> None:
    document = _applied("certificates.k8s.io", "certificatesigningrequests", dict(given))
    assert document == {"status": given.get("status") or {}}


def test_the_limits_of_containers_follow_from_one_another():
    row = {"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi", "cpu": "1"}, "default": {"memory": "2Mi"}}
    pod = {"type": "Pod", "max": {"cpu": "2"}}
    assert _applied("", "limitranges", {"spec": {"limits": [row, pod]}})["spec"]["limits"] == [
        {**row, "default": {"memory": "2Mi", "cpu": "2"}, "defaultRequest": {"memory": "2Mi", "cpu": "2"}},
        pod,
    ]


def test_a_limit_range_asks_for_the_least_where_nothing_else_is_said():
    row = {"type": "Container", "min": {"cpu": "1"}}
    applied = _applied("", "limitranges", {"spec": {"limits": [row]}})["spec"]["limits"][0]
    assert (applied["default"], applied["defaultRequest"]) == ({}, {"cpu": "1"})


def test_an_autoscaler_looks_at_the_cpu():
    spec = _applied("autoscaling", "horizontalpodautoscalers", {"spec": {"maxReplicas": 3}})["spec"]
    target = {"type": "Utilization", "averageUtilization": 80}
    assert spec["minReplicas"] == 1
    assert spec["metrics"] == [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    assert "behavior" not in spec


def test_what_a_behaviour_leaves_out_is_filled_in():
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 5, "selectPolicy": "Min"}}
    spec = _applied("autoscaling", "horizontalpodautoscalers", {"spec": {"metrics": [{}], "behavior": behavior}})[
        "spec"
    ]
    assert spec["metrics"] == [{}]
    assert spec["behavior"] == {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Max",
            "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 15},
                {"type": "Percent", "value": 100, "periodSeconds": 15},
            ],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": 5,
            "selectPolicy": "Min",
            "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
        },
    }


@pytest.mark.parametrize(
    ("spec", "types"),
    [({}, ["Ingress"]), ({"egress": [{}]}, ["Ingress", "Egress"]), ({"policyTypes": ["Egress"]}, ["Egress"])],
)
def test_what_a_network_policy_is_about(spec, types):
    assert _applied("networking.k8s.io", "networkpolicies", {"spec": dict(spec)})["spec"]["policyTypes"] == types


def test_the_ports_of_a_network_policy_are_tcp():
    given = {"spec": {"ingress": [{"ports": [{"port": 1}]}], "egress": [{"ports": [{"protocol": "UDP"}]}]}}
    spec = _applied("networking.k8s.io", "networkpolicies", given)["spec"]
    assert spec["ingress"] == [{"ports": [{"port": 1, "protocol": "TCP"}]}]
    assert spec["egress"] == [{"ports": [{"protocol": "UDP"}]}]


def test_smaller_defaults():
    assert _applied("scheduling.k8s.io", "priorityclasses", {}) == {"preemptionPolicy": "PreemptLowerPriority"}
    assert _applied("networking.k8s.io", "ingresses", {}) == {"status": {"loadBalancer": {}}}
    given: dict[str, Any] = {"spec": {"parameters": {}}}
    assert _applied("networking.k8s.io", "ingressclasses", given) == {"spec": {"parameters": {"scope": "Cluster"}}}
    assert _applied("networking.k8s.io", "ingressclasses", {}) == {}
    template: dict[str, Any] = {"template": {"spec": {"containers": []}}}
    assert _applied("", "podtemplates", template)["template"]["spec"]["restartPolicy"] == "Always"


def test_every_built_in_object_that_can_have_a_status_has_one():
    assert _applied("networking.k8s.io", "networkpolicies", {}).get("status") is None
    assert _applied("batch", "jobs", {})["status"] == {}
    budget = {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0}
    assert _applied("policy", "poddisruptionbudgets", {}) == {"status": budget}
    stored = {"expectedPods": 1, "currentHealthy": None}
    found = _applied("policy", "poddisruptionbudgets", {"status": stored})
    assert found == {"status": {**budget, "expectedPods": 1}}
    assert stored == {"expectedPods": 1, "currentHealthy": None}
    custom: dict[str, Any] = {"spec": {}}
    defaults.complete_status(sample_documents.widget(), custom)
    assert custom == {"spec": {}}
