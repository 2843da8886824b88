# SPDX-License-Identifier: Apache-2.0
"""Kinds, in the order in which they are sent, and the one source."""

from handfast.rules.envoy import resources


def test_what_is_named_is_sent_before_who_names_it():
    assert [kind.name for kind in resources.Kind] == ["SECRET", "CLUSTER", "ENDPOINTS", "LISTENER", "ROUTES"]


def test_a_kind_has_the_address_of_its_type():
    assert resources.Kind.LISTENER.type_url == "type.googleapis.com/envoy.config.listener.v3.Listener"


def test_the_source_is_the_same_each_time_and_nobody_can_change_it():
    resources.source()["ads"]["changed"] = True
    assert resources.source() == dict(resources.SOURCE)
