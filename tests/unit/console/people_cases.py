# SPDX-License-Identifier: Apache-2.0
"""Requests, tokens and operators with fewer rights, for the tests of these pages; nothing here is under test."""

from __future__ import annotations

import base64
import pathlib
import re
from typing import Any

from handfast.bootstrap import tokens
from handfast.pki import authority, keys, names, pem, profiles, requests
from tests.unit.rules import csr_cases
from tests.world import world as worlds

SECRET = "0123456789abcdef"
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SECRETS = "/api/v1/namespaces/kube-system/secrets"
# What strangers write: markup, quotes, changes of direction and controls.
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{7*7}}\u202egnp\u0007"


async def file_request(
    world: worlds.World, name: str, *, cn: str = "", by: str = "", group: str = "system:masters", **spec: Any
) -> Any:
    """A request that nobody decides: this world has no controllers. `by` is the user that it comes from."""
    subject = names.Subject(common_name=cn or f"system:node:{name}", organizations=("system:nodes",))
    content = requests.build(subject, names.Sans(), csr_cases.KEY)
    document = {
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(content).decode(),
            "signerName": csr_cases.KUBELET_CLIENT,
            "usages": list(csr_cases.CLIENT),
            **spec,
        },
    }
    acting = {"Impersonate-User": by, "Impersonate-Group": group} if by else {}
    answer = await world.request("POST", CSRS, document, headers=acting)
    assert answer.status == 201, answer.body
    return answer.json()


async def condition(world: worlds.World, name: str) -> dict[str, Any]:
    """The condition of a request, which is the only one."""
    rows = (await world.get(f"{CSRS}/{name}")).json().get("status", {}).get("conditions", [])
    assert len(rows) < 2
    return rows[0] if rows else {}


async def make_token(world: worlds.World, token_id: str, description: str = "for racks", **annotations: str) -> None:
    document = tokens.secret_document(tokens.Token(token_id, SECRET), usages=tokens.USAGES, description=description)
    document["metadata"]["annotations"] = {
        # As `kubectl apply` leaves it.
        "kubectl.kubernetes.io/last-applied-configuration": base64.b64decode(document["data"]["token-secret"]).decode(),
        **annotations,
    }
    answer = await world.request("POST", SECRETS, document)
    assert answer.status == 201, answer.body


async def allow(world: worlds.World, user: str, rules: list[dict[str, Any]]) -> None:
    """Let a user do this, and nothing more."""
    api = "/apis/rbac.authorization.k8s.io/v1"
    role = {"metadata": {"name": user}, "rules": rules}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}
    binding = {"metadata": {"name": user}, "roleRef": reference, "subjects": [{"kind": "User", "name": user}]}
    for path, document in (("clusterroles", role), ("clusterrolebindings", binding)):
        answer = await world.request("POST", f"{api}/{path}", document)
        assert answer.status == 201, answer.body


def kubeconfig_of(world: worlds.World, user: str, path: pathlib.Path) -> pathlib.Path:
    """The administrator's, with the certificate of another."""
    ca = authority.Authority(
        pem.certificates_from_pem(world.place.ca_certificate.read_bytes())[0],
        keys.private_from_pem(world.place.ca_key.read_bytes()),
    )
    key = keys.generate()
    issued = ca.issue(key.public, names.Subject(common_name=user), names.Sans(), profiles.CLIENT, world.clock.now())
    text = world.place.admin_kubeconfig.read_text()
    for field, data in (("client-certificate-data", issued.pem), ("client-key-data", key.to_pem())):
        packed = base64.b64encode(data).decode()
        text = re.sub(rf'{field}: "?[^\s"]+"?', f"{field}: {packed}", text)
    path.write_text(text)
    return path
