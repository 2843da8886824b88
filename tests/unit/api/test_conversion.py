# SPDX-License-Identifier: Apache-2.0
"""Events under their two names."""

from __future__ import annotations

from handfast.api import conversion, kinds
from tests.properties import sample_documents

CORE = sample_documents.kind("", "events")
NEW = sample_documents.kind("events.k8s.io", "events")


def test_every_renamed_key_in_both_directions():
    served = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "regarding": {"name": "web"},
        "note": "text",
        "deprecatedSource": {"component": "c"},
        "deprecatedFirstTimestamp": "1",
        "deprecatedLastTimestamp": "2",
        "deprecatedCount": 3,
        "reportingController": "r",
        "reason": "same",
    }
    stored = conversion.to_stored(NEW, served)
    assert stored == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {"name": "web"},
        "message": "text",
        "source": {"component": "c"},
        "firstTimestamp": "1",
        "lastTimestamp": "2",
        "count": 3,
        "reportingComponent": "r",
        "reason": "same",
    }
    assert conversion.to_served(NEW, stored) == served


def test_what_has_the_wanted_form_is_returned_itself():
    core = sample_documents.document(CORE)
    assert conversion.to_stored(CORE, core) is core
    assert conversion.to_served(CORE, core) is core
    assert conversion.to_stored(NEW, core) is core
    new = sample_documents.document(NEW)
    assert conversion.to_served(NEW, new) is new


def test_an_autoscaler_is_stored_as_v2_and_served_as_either():
    rows = {row.version: row for row in kinds.builtin() if row.plural == "horizontalpodautoscalers"}
    old = {"apiVersion": "autoscaling/v1", "metadata": {}, "spec": {"targetCPUUtilizationPercentage": 5}}
    stored = conversion.to_stored(rows["v1"], old)
    assert stored["apiVersion"] == "autoscaling/v2"
    assert conversion.to_served(rows["v1"], stored) == old
    assert conversion.to_served(rows["v2"], stored) is stored
