# SPDX-License-Identifier: Apache-2.0
"""The names by which the parts of a roll-out know one another: annotations, labels, objects. It reads and writes none of them.

On a Node, `desiredConfig` is the control plane's to write. The agent on the node writes what it has, how far it is and why, and that it
follows at all. OpenShift's names are as OpenShift has them; those of `machines.handfast.dev` are ours.
"""

from __future__ import annotations

from typing import Final

from handfast.api import machine_config_kinds
from handfast.rules.machines import bootstrapper

_GROUP: Final = machine_config_kinds.GROUP
_OWN: Final = "machines.handfast.dev"

# On a Node.
CURRENT: Final = f"{_GROUP}/currentConfig"
DESIRED: Final = f"{_GROUP}/desiredConfig"
STATE: Final = f"{_GROUP}/state"
REASON: Final = f"{_GROUP}/reason"
AGENT: Final = f"{_OWN}/configuration-agent"
AGENT_VERSION: Final = "v1"
# All that a roll-out writes on a Node: what else looks at Nodes need not look again for these.
OF_ROLL_OUTS: Final = frozenset({CURRENT, DESIRED, STATE, REASON, AGENT})

# The values of STATE.
DONE: Final = "Done"
WORKING: Final = "Working"
DEGRADED: Final = "Degraded"
UNRECONCILABLE: Final = "Unreconcilable"

# On a MachineConfig: the role that it is for; on a rendered one, by what and from what.
ROLE_LABEL: Final = machine_config_kinds.ROLE_LABEL
RENDERED_BY: Final = f"{_GROUP}/generated-by-controller-version"
# `<kind> sha256:<hex>`: the bootstrap credential by digest, never by value.
CREDENTIAL: Final = f"{_OWN}/bootstrap-credential"
# The digest of everything but the credential: two renderings with the same one differ in the credential alone.
CONFIGURATION: Final = f"{_OWN}/configuration"

# Where the machine-config server listens, and the header in which it says why it answers with an error.
SERVER_PORT: Final = 22623
REASON_HEADER: Final = "Handfast-Reason"

# The kinds of bootstrap credentials.
CERTIFICATE: Final = "certificate"
SERVICE_ACCOUNT: Final = "service-account"

# In the namespace of the machine-config-operator: where machines reach the API server, and whom they trust as it.
KUBECONFIG_DATA: Final = "kubeconfig-data"
SERVER_KEY: Final = "server"
CA_KEY: Final = "ca-bundle.crt"
# The worker's next credential, while the one in force is to be revoked after the roll-out.
NEXT_TOKEN_SECRET: Final = bootstrapper.NEXT_TOKEN_SECRET
# On the object of a credential: since when it is to be revoked, once its replacement is everywhere.
REVOKE_AFTER_ROLLOUT: Final = f"{_OWN}/revoke-after-rollout"
