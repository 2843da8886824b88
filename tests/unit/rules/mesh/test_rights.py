# SPDX-License-Identifier: Apache-2.0
"""What the accounts of the control plane may do: Secrets above all."""

from __future__ import annotations

import pytest

from handfast.rules.mesh import control_plane, rights


@pytest.mark.parametrize("account", control_plane.ACCOUNTS)
def test_secrets_are_read_by_name_alone_each_by_its_service(account):
    rules = [*rights.EVERYWHERE[account], *rights.OWN[account]]
    secrets = [rule for rule in rules if {"secrets", "*"} & set(rule.resources)]
    assert all(rule not in rights.EVERYWHERE[account] for rule in secrets)
    own = {control_plane.IDENTITY: control_plane.SIGNING, control_plane.INJECTOR: control_plane.INJECTOR_PAIR}
    assert [rule.resource_names for rule in secrets] == ([(own[account],)] if account in own else [])


@pytest.mark.parametrize("account", control_plane.ACCOUNTS)
def test_no_right_is_wider_than_it_says(account):
    for rule in [*rights.EVERYWHERE[account], *rights.OWN[account]]:
        assert "*" not in {*rule.verbs, *rule.resources, *rule.api_groups}
        assert not {"escalate", "bind", "impersonate"} & set(rule.verbs)


@pytest.mark.parametrize("account", control_plane.ACCOUNTS)
def test_every_account_reads_settings_and_anchors_by_name(account):
    assert rights.SHARED in rights.OWN[account]
    assert set(rights.SHARED.resource_names) == {"linkerd-config", "linkerd-trust-anchor"}
