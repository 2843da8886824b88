# SPDX-License-Identifier: Apache-2.0
"""From messages of agents to what rules judge, and from what rules compile to messages. It judges nothing."""

from __future__ import annotations

from typing import Any

from handfast.rules.mesh import policy, reports
from handfast.wire import agent_messages


def read_report(message: Any) -> reports.Report:
    """What an agent says, in the types of `rules`."""
    return reports.Report(
        size=message.ByteSize(),
        acknowledged=message.acknowledged,
        pod=(message.pod.namespace, message.pod.name),
        certificate=message.certificate.sha256.hex(),
        edges=tuple(
            agent_messages.read_edge(edge)
            # Of more than may be, the bound is told by one more.
            for edge in message.edges[: reports.MOST_EDGES + 1]
        ),
    )


def encode_policy(compiled: policy.Compiled) -> bytes:
    """The part of an Update that is a workload's own."""
    message = {
        "ports": [
            {
                "port": rules.port,
                "enforced": _rules(rules.enforced),
                **({} if rules.audited is None else {"audited": _rules(rules.audited)}),
            }
            for rules in compiled.ports
        ],
        "needs_outbound": compiled.needs_outbound,
        "would_need_outbound": compiled.would_need_outbound,
    }
    return bytes(agent_messages.Update(policy=message).SerializeToString())


def encode_version(version: int) -> bytes:
    return bytes(agent_messages.Update(version=version).SerializeToString())


def _rules(rules: policy.Rules) -> dict[str, Any]:
    return {
        "restricted": rules.restricted,
        "needs_identity": rules.needs_identity,
        "permits": [
            {
                "policy": permit.policy,
                "row": permit.row,
                # One of the three.
                **({"anyone": True} if permit.anyone else {}),
                **({"identity": permit.identity} if permit.identity else {}),
                **({"suffix": permit.suffix} if permit.suffix else {}),
            }
            for permit in rules.permits
        ],
    }
