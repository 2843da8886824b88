# SPDX-License-Identifier: Apache-2.0
"""What each account of the control plane may do, and nothing more. It grants nothing: `installation` has the objects.

1. The Secret with the issuer's key is read by the identity service, by its name, and by no other account.
2. No account reads Secrets of other namespaces. The injector reads and changes the Secret of its own pair, by its name.
3. The settings and the trust anchors are read by name, by all of them. Who installs the mesh reads these two as well.
4. An account reads what it decides by, and writes what it says: Events, the identity service the ledger, and the controller what agents
   report. The ledger is read by the controller: by it certificates are denied.
5. Who serves beyond loopback with a certificate of the mesh may ask for a token of its own account, and of no other.

| who | holding | tries | stopped by | shown in tests/scenarios/test_mesh_install.py |
|---|---|---|---|---|
| an intruder in the destination service, or the injector | its token | read the issuer's key | 1 | test_the_issuers_key_is_read_by_the_identity_service_alone |
| an intruder in any of them | its token | read the Secrets of applications | 2 | test_no_account_reads_secrets_of_applications |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from handfast.api import handfast_kinds, signer_names
from handfast.rules.mesh import control_plane
from handfast.rules.rbac import default_roles as roles
from handfast.rules.rbac import policy_rules

_EVENTS: Final = roles.on("", "events", "create get patch update")
_REVOCATIONS: Final = roles.on(roles.HANDFAST, handfast_kinds.REVOCATION.plural, roles.READ)
_WORKLOADS: Final = handfast_kinds.MESH_WORKLOAD.plural

# 3. by name
SHARED: Final = roles.on("", "configmaps", roles.READ, control_plane.CONFIG, control_plane.TRUST_ANCHOR)

# Account -> what it may do in every namespace. 2. no Secrets are among it
EVERYWHERE: Final[Mapping[str, tuple[policy_rules.PolicyRule, ...]]] = {
    control_plane.IDENTITY: (
        roles.on(roles.AUTHENTICATION, "tokenreviews", "create"),
        # 4. the ledger
        roles.on(roles.HANDFAST, handfast_kinds.ISSUANCE_LOG.plural, "create get list patch"),
        # Whoever adds an entry may sign for the signer that it names.
        roles.on(roles.CERTIFICATES, "signers", "sign", signer_names.MESH_IDENTITY),
        _REVOCATIONS,
        _EVENTS,
    ),
    control_plane.CONTROLLER: (
        roles.on("", "pods serviceaccounts services", roles.READ),
        roles.on(roles.DISCOVERY, "endpointslices", roles.READ),
        # 4. the ledger, and what agents report
        roles.on(roles.HANDFAST, handfast_kinds.ISSUANCE_LOG.plural, roles.READ),
        roles.on(roles.HANDFAST, _WORKLOADS, "create delete get"),
        roles.on(roles.HANDFAST, f"{_WORKLOADS}/status", "patch"),
        roles.on(roles.HANDFAST, handfast_kinds.MESH_POLICY.plural, roles.READ),
        _REVOCATIONS,
        _EVENTS,
    ),
    control_plane.INJECTOR: (
        roles.on("", "namespaces serviceaccounts", roles.READ),
        roles.on(
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations",
            "get list patch update watch",
            control_plane.INJECTOR,
        ),
        _EVENTS,
    ),
}

# Account -> what it may do in the namespace of the control plane beside that.
OWN: Final[Mapping[str, tuple[policy_rules.PolicyRule, ...]]] = {
    # 1. the issuer's key
    control_plane.IDENTITY: (SHARED, roles.on("", "secrets", roles.READ, control_plane.SIGNING)),
    # 5. its own token, by which it has its certificate
    control_plane.CONTROLLER: (SHARED, roles.on("", "serviceaccounts/token", "create", control_plane.CONTROLLER)),
    # 2. its own pair
    control_plane.INJECTOR: (
        SHARED,
        roles.on("", "secrets", "get list patch update watch", control_plane.INJECTOR_PAIR),
    ),
}
