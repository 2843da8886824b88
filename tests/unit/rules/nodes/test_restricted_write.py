# SPDX-License-Identifier: Apache-2.0
"""What the rules for writes of nodes see of one, and the words of their refusals."""

from __future__ import annotations

import pytest

from handfast.api import objects
from handfast.rules import decision
from handfast.rules.nodes import restricted_write
from tests.unit.rules.node_cases import CREATE, DELETE, PODS, UPDATE, write

SENT: objects.Document = {"metadata": {"name": "sent"}}


@pytest.mark.parametrize(
    ("operation", "subresource", "document", "name"),
    [
        (CREATE, "", SENT, "sent"),
        (CREATE, "", {"metadata": {}}, ""),
        (CREATE, "", {"metadata": {"name": None}}, ""),
        (CREATE, "", None, "url"),
        (CREATE, "eviction", SENT, "url"),
        (UPDATE, "", SENT, "url"),
        (DELETE, "", None, "url"),
    ],
)
def test_the_name_that_will_be_written(
    operation: str, subresource: str, document: objects.Document | None, name: str
) -> None:
    asked = write(operation, PODS, name="url", subresource=subresource, document=document)
    assert asked.object_name == name


def test_refusals_name_the_rule_and_quote_what_is_missing() -> None:
    assert restricted_write.refuse("Why", "because") == decision.Deny("Why", "because", restricted_write.RULE)
    assert restricted_write.missing("pod", 'bücher"') == decision.Missing(
        "NotFound", 'pod "bücher\\"" not found', restricted_write.RULE, "pod", 'bücher"'
    )
