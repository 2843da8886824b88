# SPDX-License-Identifier: Apache-2.0
"""One full, valid document for each built-in kind, for tests to read, change and break. It asserts nothing."""

from __future__ import annotations

import base64
import copy
from typing import Any

from handfast.api import kinds

CREATED = "2026-01-02T03:04:05Z"
_RBAC = "rbac.authorization.k8s.io"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


_POD_SPEC: dict[str, Any] = {
    "serviceAccountName": "builder",
    "nodeName": "n1",
    "nodeSelector": {"disk": "ssd"},
    "hostNetwork": True,
    "readinessGates": [{"conditionType": "example.com/ready"}],
    "volumes": [
        {"name": "config", "configMap": {"name": "c"}},
        {"name": "scratch"},
        {"name": "host", "hostPath": {"path": "/x"}},
        {"name": "claim", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}},
        {"name": "info", "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        {
            "name": "all",
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"path": "token"}},
                    {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                ]
            },
        },
    ],
    "initContainers": [
        {"name": "prepare", "image": "tool:1"},
        {"name": "proxy", "image": "proxy:1", "restartPolicy": "Always"},
    ],
    "containers": [
        {
            "name": "web",
            "image": "registry.example.com:5000/web",
            "ports": [{"name": "http", "containerPort": 8080}],
            "env": [
                {"name": "A", "value": "b"},
                {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            ],
            "volumeMounts": [{"name": "config", "mountPath": "/etc/web"}],
            "resources": {"limits": {"cpu": "100m", "memory": "1Gi"}, "requests": {"cpu": "0.1"}},
            "livenessProbe": {"httpGet": {"port": 8080}},
            "readinessProbe": {"grpc": {"port": 1}},
            "lifecycle": {"preStop": {"httpGet": {"port": 8080}}},
        }
    ],
    "tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5}],
}
_POD_STATUS = {
    "phase": "Running",
    "podIPs": [{"ip": "10.0.0.7"}],
    "nominatedNodeName": "n2",
    "conditions": [
        {"type": "Initialized", "status": "True"},
        {"type": "Ready", "status": "True"},
        {"type": "example.com/ready", "status": "True"},
    ],
    "initContainerStatuses": [
        {"name": "prepare", "restartCount": 3, "state": {"terminated": {"exitCode": 0}}},
        {"name": "proxy", "restartCount": 1, "started": True, "ready": True, "state": {"running": {}}},
    ],
    "containerStatuses": [
        {
            "name": "web",
            "ready": True,
            "restartCount": 2,
            "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 1, "finishedAt": CREATED}},
        }
    ],
}
_LABELS: dict[str, Any] = {"app": "web"}
_TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": _LABELS},
    "spec": {"containers": [{"name": "web", "image": "web:1"}]},
}
_JOB_TEMPLATE = {**_TEMPLATE, "spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}}
_SELECTOR = {"matchLabels": _LABELS, "matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "api"]}]}
_APPS = {"replicas": 2, "selector": _SELECTOR, "template": _TEMPLATE}
_RULE: dict[str, Any] = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
_WEBHOOK = {
    "name": "check.example.com",
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "clientConfig": {"service": {"name": "hook", "namespace": "default", "path": "/check"}},
    "rules": [_RULE],
    "matchConditions": [{"name": "all", "expression": "true"}],
}
_SUBJECTS = [
    {"kind": "User", "name": "ada"},
    {"kind": "Group", "name": "ops"},
    {"kind": "ServiceAccount", "name": "builder", "namespace": "default"},
]
_REPLICAS = {"replicas": 2, "readyReplicas": 1, "availableReplicas": 1}

_DOCUMENTS: dict[tuple[str, str], dict[str, Any]] = {
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): {
        "spec": {
            "failurePolicy": "Ignore",
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {"resourceRules": _WEBHOOK["rules"]},
            "matchConditions": [{"name": "all", "expression": "true"}],
            "variables": [{"name": "n", "expression": "1"}],
            "validations": [{"expression": "variables.n == 1", "message": "never"}],
            "auditAnnotations": [{"key": "note", "valueExpression": "'x'"}],
        },
        "status": {"observedGeneration": 1},
    },
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): {
        "spec": {
            "policyName": "web",
            "validationActions": ["Warn"],
            "paramRef": {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Allow"},
            "matchResources": {"resourceRules": _WEBHOOK["rules"]},
        },
    },
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"): {
        "spec": {
            "failurePolicy": "Ignore",
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {"resourceRules": [{**_RULE, "operations": ["CREATE", "UPDATE"]}]},
            "matchConditions": [{"name": "all", "expression": "true"}],
            "variables": [{"name": "n", "expression": "1"}],
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": "Object{metadata: Object.metadata{labels: {'n': 'x'}}}"},
                },
                {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/spec'}]"}},
            ],
            "reinvocationPolicy": "IfNeeded",
        },
    },
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"): {
        "spec": {
            "policyName": "web",
            "paramRef": {"name": "limits", "namespace": "default", "parameterNotFoundAction": "Allow"},
            "matchResources": {"resourceRules": [_RULE]},
        },
    },
    ("networking.k8s.io", "ipaddresses"): {
        "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "web"}}
    },
    ("networking.k8s.io", "servicecidrs"): {
        "spec": {"cidrs": ["192.0.2.0/24", "2001:db8::/64"]},
        "status": {
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "",
                    "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ]
        },
    },
    ("storage.k8s.io", "volumeattributesclasses"): {"driverName": "csi.example.com", "parameters": {"iops": "4000"}},
    ("", "namespaces"): {},
    ("", "secrets"): {"data": {"a": encoded("1")}, "stringData": {"b": "2"}},
    ("", "configmaps"): {"data": {"a": "1"}, "binaryData": {"b": encoded("2")}},
    ("", "serviceaccounts"): {},
    ("", "nodes"): {
        "spec": {
            "podCIDR": "10.1.0.0/24",
            "unschedulable": True,
            "taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}],
        },
        "status": {
            "capacity": {"cpu": "4"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1.36.4", "osImage": "Debian", "kernelVersion": "6.1"},
        },
    },
    ("", "pods"): {"spec": _POD_SPEC, "status": _POD_STATUS},
    ("", "services"): {
        "spec": {
            "clusterIP": "10.96.0.1",
            "selector": _LABELS,
            "sessionAffinity": "ClientIP",
            "externalIPs": ["192.0.2.1"],
            "ports": [{"name": "http", "port": 80, "targetPort": "http"}, {"name": "s", "port": 443}],
        }
    },
    ("", "endpoints"): {
        "subsets": [{"addresses": [{"ip": "10.0.0.7"}, {"ip": "2001:db8::1"}], "ports": [{"port": 80}]}]
    },
    ("", "events"): {
        "involvedObject": {"kind": "Pod", "name": "web", "namespace": "default", "fieldPath": "spec"},
        "type": "Warning",
        "reason": "BackOff",
        "message": "no luck\n",
        "source": {"component": "kubelet", "host": "n1"},
        "firstTimestamp": CREATED,
        "lastTimestamp": CREATED,
        "count": 4,
    },
    ("events.k8s.io", "events"): {
        "regarding": {"kind": "Pod", "name": "web", "namespace": "default"},
        "type": "Normal",
        "reason": "Started",
        "action": "Start",
        "note": "it runs",
        "eventTime": "2026-01-02T03:04:05.000006Z",
        "reportingController": "example.com/runner",
        "reportingInstance": "runner-1",
        "series": {"count": 7, "lastObservedTime": "2026-01-02T03:04:05.000006Z"},
    },
    ("", "persistentvolumes"): {
        "spec": {
            "capacity": {"storage": "5Gi"},
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            "hostPath": {"path": "/x"},
            "claimRef": {"namespace": "default", "name": "c"},
            "storageClassName": "fast",
        }
    },
    ("", "persistentvolumeclaims"): {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "5Gi"}},
            "volumeName": "v",
            "storageClassName": "fast",
        },
        "status": {"phase": "Bound", "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"]},
    },
    ("", "replicationcontrollers"): {"spec": {"template": _TEMPLATE}, "status": _REPLICAS},
    ("discovery.k8s.io", "endpointslices"): {
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.7"]}, {"addresses": ["127.0.0.1"]}],
        "ports": [{"name": "http", "port": 80}, {"name": "any"}],
    },
    ("coordination.k8s.io", "leases"): {
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 0}
    },
    ("certificates.k8s.io", "certificatesigningrequests"): {
        "spec": {
            "request": encoded("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
            "username": "system:bootstrap:abcdef",
            "expirationSeconds": 86400,
        },
        "status": {"conditions": [{"type": "Approved", "status": "True"}], "certificate": encoded("x")},
    },
    (_RBAC, "roles"): {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]},
    (_RBAC, "clusterroles"): {
        "rules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}],
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
    },
    (_RBAC, "rolebindings"): {"roleRef": {"kind": "Role", "name": "reader"}, "subjects": _SUBJECTS},
    (_RBAC, "clusterrolebindings"): {"roleRef": {"kind": "ClusterRole", "name": "reader"}, "subjects": _SUBJECTS},
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): {"webhooks": [_WEBHOOK]},
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): {
        "webhooks": [{**_WEBHOOK, "clientConfig": {"url": "https://hook.example.com/check"}}]
    },
    ("apiextensions.k8s.io", "customresourcedefinitions"): {
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                    "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                }
            ],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    "conversionReviewVersions": ["v1"],
                    "clientConfig": {"service": {"name": "convert", "namespace": "default"}},
                },
            },
        },
        "status": {"conditions": [{"type": "Established", "status": "True"}]},
    },
    ("apps", "deployments"): {"spec": _APPS, "status": {**_REPLICAS, "updatedReplicas": 2}},
    ("apps", "daemonsets"): {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}, "status": {"numberReady": 3}},
    ("apps", "statefulsets"): {
        "spec": {
            **_APPS,
            "serviceName": "web",
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}],
            "template": {
                **_TEMPLATE,
                "spec": {
                    "containers": [
                        {"name": "w", "image": "w:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
                    ]
                },
            },
        }
    },
    ("apps", "replicasets"): {"spec": _APPS, "status": _REPLICAS},
    ("batch", "jobs"): {
        "spec": {
            "template": _JOB_TEMPLATE,
            "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]},
        },
        "status": {"startTime": CREATED, "succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]},
    },
    ("batch", "cronjobs"): {
        "spec": {
            "schedule": "*/5 * * * *",
            "timeZone": "Etc/UTC",
            "jobTemplate": {"spec": {"template": _JOB_TEMPLATE}},
        },
        "status": {"active": [{"name": "j"}], "lastScheduleTime": CREATED},
    },
    ("storage.k8s.io", "csinodes"): {"spec": {"drivers": [{"name": "csi.example.com", "nodeID": "n1"}]}},
    ("storage.k8s.io", "volumeattachments"): {
        "spec": {"attacher": "csi.example.com", "nodeName": "n1", "source": {"persistentVolumeName": "v"}},
        "status": {"attached": True},
    },
    ("storage.k8s.io", "csidrivers"): {"spec": {"tokenRequests": [{"audience": "a"}]}},
    ("storage.k8s.io", "storageclasses"): {"provisioner": "csi.example.com"},
    ("node.k8s.io", "runtimeclasses"): {"handler": "runc"},
    ("", "podtemplates"): {"template": _TEMPLATE},
    ("", "componentstatuses"): {"conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]},
    ("apiregistration.k8s.io", "apiservices"): {
        "spec": {"version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1},
        "status": {"conditions": [{"type": "Available", "status": "True"}]},
    },
    ("flowcontrol.apiserver.k8s.io", "flowschemas"): {
        "spec": {
            "priorityLevelConfiguration": {"name": "user"},
            "matchingPrecedence": 900,
            "distinguisherMethod": {"type": "ByUser"},
        },
        "status": {"conditions": [{"type": "Dangling", "status": "False"}]},
    },
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"): {
        "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 0}}
    },
    ("", "resourcequotas"): {
        "spec": {
            "hard": {"pods": "10", "requests.cpu": "2", "limits.memory": "1Gi"},
            "scopes": ["NotBestEffort"],
            "scopeSelector": {
                "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]
            },
        },
        "status": {"hard": {"pods": "10", "requests.cpu": "2", "limits.memory": "1Gi"}, "used": {"pods": "3"}},
    },
    ("", "limitranges"): {
        "spec": {
            "limits": [
                {
                    "type": "Container",
                    "max": {"cpu": "2"},
                    "min": {"cpu": "100m"},
                    "maxLimitRequestRatio": {"cpu": "3"},
                },
                {"type": "Pod", "max": {"memory": "1Gi"}},
                {"type": "PersistentVolumeClaim", "max": {"storage": "5Gi"}},
            ]
        }
    },
    ("apps", "controllerrevisions"): {"revision": 3, "data": {"spec": {}}},
    ("autoscaling", "horizontalpodautoscalers"): {
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 5,
            "behavior": {"scaleUp": {"selectPolicy": "Min"}},
        },
        "status": {"currentReplicas": 2, "desiredReplicas": 2},
    },
    ("networking.k8s.io", "ingresses"): {
        "spec": {
            "ingressClassName": "web",
            "rules": [
                {
                    "host": "a.example.com",
                    "http": {
                        "paths": [
                            {
                                "path": "/",
                                "pathType": "Prefix",
                                "backend": {"service": {"name": "web", "port": {"number": 80}}},
                            }
                        ]
                    },
                }
            ],
            "tls": [{"hosts": ["*.example.com"], "secretName": "tls"}],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}},
    },
    ("networking.k8s.io", "ingressclasses"): {
        "spec": {
            "controller": "example.com/controller",
            "parameters": {"apiGroup": "example.com", "kind": "Parameters", "name": "p"},
        }
    },
    ("networking.k8s.io", "networkpolicies"): {
        "spec": {
            "podSelector": {"matchLabels": {"app": "web"}},
            "ingress": [
                {
                    "ports": [{"port": 80, "endPort": 90}],
                    "from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}],
                }
            ],
            "egress": [{"to": [{"podSelector": {}, "namespaceSelector": {}}]}],
        }
    },
    ("policy", "poddisruptionbudgets"): {
        "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2},
    },
    ("scheduling.k8s.io", "priorityclasses"): {"value": 1000, "globalDefault": True},
    ("storage.k8s.io", "csistoragecapacities"): {
        "storageClassName": "fast",
        "capacity": "5Gi",
        "nodeTopology": {"matchLabels": {"zone": "a"}},
    },
}


_NAMES = {"customresourcedefinitions": "widgets.example.com", "ipaddresses": "192.0.2.1"}


def kind(group: str, plural: str) -> kinds.Kind:
    return kinds.row(plural, group)


def widget(**more: Any) -> kinds.Kind:
    """The row of a custom resource."""
    usual = {"group": "example.com", "version": "v1", "kind": "Widget", "plural": "widgets", "singular": "widget"}
    return kinds.Kind(**{**usual, "namespaced": True, **more})


def document(row: kinds.Kind) -> dict[str, Any]:
    """A fresh copy, not defaulted."""
    name = _NAMES.get(row.plural, "web")
    metadata = {"name": name, "uid": "u1", "creationTimestamp": CREATED}
    if row.namespaced:
        metadata["namespace"] = "default"
    return copy.deepcopy(
        {"apiVersion": row.api_version, "kind": row.kind, "metadata": metadata, **_DOCUMENTS[row.resource]}
    )
