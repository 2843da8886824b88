# SPDX-License-Identifier: Apache-2.0
"""Each request has one judge."""

from __future__ import annotations

import pytest

from handfast.api import signer_names, signing_requests
from handfast.rules.machines import bootstrapper, ownership

CLIENT, SERVING = signer_names.KUBELET_CLIENT, signer_names.KUBELET_SERVING
IDENTITIES = (bootstrapper.NODE_BOOTSTRAPPER,)


@pytest.mark.parametrize(
    ("signer", "user", "groups", "is_machine_approvers"),
    [
        pytest.param(CLIENT, bootstrapper.USER, bootstrapper.GROUPS, True, id="the bootstrapper"),
        pytest.param(CLIENT, bootstrapper.USER, (), True, id="one that lacks its groups is told so here"),
        pytest.param(CLIENT, "system:node:w1", ("system:nodes",), False, id="a renewal"),
        pytest.param(CLIENT, "system:node-recovery:w1", ("system:node-recovery",), False, id="a recovering node"),
        pytest.param(CLIENT, "system:bootstrap:abcdef", ("system:bootstrappers",), False, id="a bootstrap token"),
        pytest.param(SERVING, "system:node:w1", ("system:nodes",), True, id="a serving certificate"),
        pytest.param(SERVING, bootstrapper.USER, bootstrapper.GROUPS, False, id="a serving certificate by no node"),
        pytest.param("example.com/own", bootstrapper.USER, bootstrapper.GROUPS, False, id="another signer"),
    ],
)
def test_each_request_has_one_judge(signer, user, groups, is_machine_approvers):
    spec = signing_requests.Spec(signer_name=signer, username=user, groups=list(groups))
    assert ownership.is_machine_approvers(spec, IDENTITIES) is is_machine_approvers


def test_the_operators_identities_count():
    spec = signing_requests.Spec(signer_name=CLIENT, username="joiner")
    assert ownership.is_machine_approvers(spec, (bootstrapper.Identity("joiner", frozenset()),))
