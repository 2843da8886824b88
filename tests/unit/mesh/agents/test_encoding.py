# SPDX-License-Identifier: Apache-2.0
"""What rules compile, as agents are told it."""

from handfast.mesh.agents import encoding
from handfast.rules.mesh import policy
from handfast.wire import agent_messages


def test_a_policy_has_all_of_its_rows():
    rows = (
        policy.Permit(policy="a/b", row=0, identity="web"),
        policy.Permit(policy="a/b", row=1, suffix=".team"),
        policy.Permit(policy="a/c", row=0, anyone=True),
    )
    rules = policy.Rules(restricted=True, needs_identity=True, permits=rows)
    compiled = policy.Compiled(
        ports=(
            policy.PortRules(port=0, enforced=policy.Rules()),
            policy.PortRules(port=80, enforced=rules, audited=rules),
        ),
        needs_outbound=True,
    )
    message = agent_messages.Update.FromString(encoding.encode_policy(compiled)).policy
    first, second = message.ports
    assert (first.port, first.enforced.restricted, first.HasField("audited")) == (0, False, False)
    assert (second.port, second.enforced.needs_identity, second.audited.restricted) == (80, True, True)
    kinds = [permit.WhichOneof("client") for permit in second.enforced.permits]
    assert kinds == ["identity", "suffix", "anyone"]
    assert [(permit.policy, permit.row) for permit in second.enforced.permits] == [("a/b", 0), ("a/b", 1), ("a/c", 0)]
    assert (message.needs_outbound, message.would_need_outbound) == (True, False)


def test_a_version_is_the_first_field():
    assert agent_messages.Update.FromString(encoding.encode_version(7)).version == 7
