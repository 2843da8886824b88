# SPDX-License-Identifier: Apache-2.0
"""Whatever policies there are: what Envoy makes of its matcher is what the rules decide."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from handfast.rules import decision
from handfast.rules.envoy import judging
from handfast.rules.mesh import enforcement, names, policy
from tests.properties.test_mesh_policy_properties import DB, SCHEMES, UIDS, identities, policies
from tests.unit.rules.envoy.matching import Call, enforced, shadow

PORTS = st.sampled_from([80, 443, 8080, 9])


def _approves(rules: policy.Rules, identity: str) -> bool:
    return isinstance(rules.decide(identity), decision.Approve)


def _is_counted(document: dict[str, Any], call: Call) -> bool:
    return "shadow_matcher" in document["rbac"] and shadow(document, call)[0] == "DENY"


@given(data=st.data(), scheme=SCHEMES, port=PORTS)
def test_the_matcher_and_the_rules_say_the_same(data: st.DataObject, scheme: names.Scheme, port: int) -> None:
    naming = policy.Naming(
        names.Mesh("cluster.local", scheme=scheme), lambda namespace, name: UIDS.get((namespace, name), "")
    )
    compiled = policy.compiled(data.draw(policies(scheme)), DB, naming)
    identity = data.draw(identities(scheme))
    rules = compiled.inbound(port)
    one = [enforcement.by_policy(compiled, port)]
    for rows in (one, enforcement.rows(policy.OTHER_PORTS, "deny", compiled, {})):
        document, call = judging.matcher(rows, proved=True), Call(san=identity or None, port=port)
        assert (enforced(document, call)[0] == "ALLOW") == _approves(rules.enforced, identity)
        assert _is_counted(document, call) == rules.would_refuse(identity)
        assert not _is_counted(document, Call(san=call.san, port=port, verdict=judging.DENIED))
        # In plaintext nobody has a name.
        document, call = judging.matcher(rows, proved=False), Call(port=port, tls=False, verdict=None)
        assert (enforced(document, call)[0] == "ALLOW") == _approves(rules.enforced, "") == one[0].tcp
        assert _is_counted(document, call) == rules.would_refuse("")
