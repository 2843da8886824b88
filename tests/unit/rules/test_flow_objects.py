# SPDX-License-Identifier: Apache-2.0
"""The limits as objects say what `rules.flow` does."""

from __future__ import annotations

from handfast.rules import flow, flow_objects


def test_every_flow_has_a_schema_and_a_level_in_the_order_in_which_they_are_asked():
    names = [document["metadata"]["name"] for document in flow_objects.schemas()]
    assert [name for name in names if name in dict(flow.CALLERS)] == [name for name, _ in flow.CALLERS]
    assert {*names} == {*dict(flow.CALLERS), flow.HEALTH, flow.RENEWAL, flow.USER}
    assert [document["metadata"]["name"] for document in flow_objects.levels({})] == names
    precedences = [document["spec"]["matchingPrecedence"] for document in flow_objects.schemas()]
    assert precedences == sorted(set(precedences))


def test_a_level_shows_its_numbers():
    levels = {document["metadata"]["name"]: document for document in flow_objects.levels({flow.USER: (400.0, 1600)})}
    assert levels[flow.USER]["spec"]["type"] == "Limited"
    assert levels[flow.USER]["metadata"]["annotations"] == {
        "handfast.dev/requests-per-second": "400",
        "handfast.dev/requests-at-once": "1600",
    }
    assert levels[flow.EXEMPT]["spec"]["type"] == "Exempt"
