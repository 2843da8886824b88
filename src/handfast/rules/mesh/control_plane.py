# SPDX-License-Identifier: Apache-2.0
"""What the parts of the control plane are called: its accounts, its objects, the keys in them. It reads and writes none of them.

The names of the seed stand where the seed and today's Linkerd differ: `linkerd-trust-anchor` and `linkerd-identity-signing`.
"""

from __future__ import annotations

from typing import Final

# Where the control plane is, unless the operator says otherwise.
NAMESPACE: Final = "linkerd"

# Its service accounts. The controller is the account of both destination and policy.
IDENTITY: Final = "linkerd-identity"
CONTROLLER: Final = "linkerd-controller"
INJECTOR: Final = "linkerd-proxy-injector"
ACCOUNTS: Final = (IDENTITY, CONTROLLER, INJECTOR)

# Its Services beside those that are called as their account is.
DESTINATION: Final = "linkerd-destination"
POLICY: Final = "linkerd-policy"

# ConfigMap: whom workloads trust.
TRUST_ANCHOR: Final = "linkerd-trust-anchor"
ANCHORS_KEY: Final = "ca-bundle.crt"
# Secret: by whom their certificates are signed. The certificate is PEM, the key DER.
SIGNING: Final = "linkerd-identity-signing"
CERTIFICATE_KEY: Final = "tls.crt"
PRIVATE_KEY_KEY: Final = "key.der"
# Secret: what the injector serves with.
INJECTOR_PAIR: Final = "linkerd-proxy-injector-tls"
# Secret: how far the replacement of the root is, with both issuers.
ROTATION: Final = "linkerd-anchor-rotation"
# ConfigMap: the settings.
CONFIG: Final = "linkerd-config"

# The audience of the tokens that workloads show to the identity service, as today's Linkerd has it.
AUDIENCE: Final = "identity.l5d.io"
