# SPDX-License-Identifier: Apache-2.0
"""Manifests that several tests use, as people write them. It talks to nobody."""

from __future__ import annotations

import pathlib

EVERY_KIND = pathlib.Path(__file__).with_name("every_kind.yaml").read_text(encoding="utf-8")
USUAL = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  labels: {app: web}
data:
  colour: green
  size: "3"
---
apiVersion: v1
kind: Secret
metadata:
  name: password
stringData:
  word: correct horse
---
apiVersion: v1
kind: Pod
metadata:
  name: web
  labels: {app: web}
spec:
  containers:
  - name: main
    image: nginx:1
    ports:
    - containerPort: 80
---
apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  selector: {app: web}
  ports:
  - port: 80
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 2
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: main
        image: nginx:1
        env:
        - {name: A, value: a}
        - {name: B, value: b}
      - name: side
        image: busybox
"""


def config_maps(count: int) -> str:
    """That many ConfigMaps: `many-000` and so on, all with the label `many`."""
    return "---\n".join(
        f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: many-{number:03}\n  labels:\n    many: 'yes'\n"
        for number in range(count)
    )


def node(name: str) -> str:
    """A Node as a kubelet would register it."""
    return f"""\
apiVersion: v1
kind: Node
metadata:
  name: {name}
  labels:
    kubernetes.io/hostname: {name}
    node-role.kubernetes.io/worker: ""
spec:
  podCIDR: 10.1.0.0/24
  taints:
  - {{key: dedicated, value: web, effect: NoSchedule}}
status:
  capacity: {{cpu: "2", memory: 4Gi, pods: "110"}}
  allocatable: {{cpu: "2", memory: 4Gi, pods: "110"}}
  addresses:
  - {{type: InternalIP, address: 10.0.0.1}}
  conditions:
  - type: Ready
    status: "True"
    reason: KubeletReady
    message: kubelet is posting ready status
    lastHeartbeatTime: "2026-01-01T00:00:00Z"
    lastTransitionTime: "2026-01-01T00:00:00Z"
  nodeInfo:
    architecture: amd64
    bootID: a
    containerRuntimeVersion: containerd://2.0.0
    kernelVersion: 6.1.0
    kubeProxyVersion: ""
    kubeletVersion: v1.37.0
    machineID: b
    operatingSystem: linux
    osImage: Debian
    systemUUID: c
"""


def event(name: str, namespace: str, about: dict[str, str], message: str) -> str:
    """An Event about an object, `about` being its involvedObject."""
    fields = "\n".join(f"  {key}: {value}" for key, value in about.items())
    return f"""\
apiVersion: v1
kind: Event
metadata:
  name: {name}
  namespace: {namespace}
involvedObject:
{fields}
reason: Tested
message: {message}
type: Warning
count: 3
source:
  component: tests
firstTimestamp: "2026-01-01T00:00:00Z"
lastTimestamp: "2026-01-01T00:10:00Z"
"""


def impersonator(name: str) -> str:
    """A ClusterRole whose holders may act as bob."""
    return f"""\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: {name}}}
rules:
- {{apiGroups: [""], resources: [users], verbs: [impersonate], resourceNames: [bob]}}
"""
