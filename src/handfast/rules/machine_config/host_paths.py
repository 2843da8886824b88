# SPDX-License-Identifier: Apache-2.0
"""Where the files lie that the server adds to a machine's configuration, as OpenShift has them. It writes none of them."""

from __future__ import annotations

from typing import Final

KUBELET_CA: Final = "/etc/kubernetes/kubelet-ca.crt"
NODE_ANNOTATIONS: Final = "/etc/machine-config-daemon/node-annotations.json"
KUBECONFIG: Final = "/etc/kubernetes/kubeconfig"
CONTENT: Final = "/etc/mcs-machine-config-content.json"
HOSTNAME: Final = "/etc/hostname"
ENCAPSULATED: Final = "/etc/ignition-machine-config-encapsulated.json"
# In the order in which they are added.
ADDED: Final = (KUBELET_CA, NODE_ANNOTATIONS, KUBECONFIG, CONTENT, HOSTNAME, ENCAPSULATED)
# A credential, and the contents of every file of the configuration: for their owner alone.
PRIVATE: Final = frozenset({KUBECONFIG, CONTENT})
# What a machine has to have whatever becomes of the rest: the bootstrap credential, and whom its kubelet believes.
CREDENTIALS: Final = frozenset({KUBECONFIG, KUBELET_CA})

UNITS: Final = "/etc/systemd/system"
