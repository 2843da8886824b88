# SPDX-License-Identifier: Apache-2.0
"""The tables of rules fit the table of kinds."""

from __future__ import annotations

from handfast.api import kinds, status
from handfast.api.validation import validation
from tests.properties import sample_documents


def test_every_row_of_rules_is_a_kind():
    # Reviews are answered, not stored; some others are made when they are read.
    served = {kind.resource for kind in kinds.builtin() if "get" in kind.verbs and not kind.is_computed}
    assert set(validation._CREATE) <= served
    assert set(validation._UPDATE) <= set(validation._CREATE)
    # A service account has nothing but metadata that could be wrong.
    assert served - set(validation._CREATE) == {("", "serviceaccounts")}


def test_a_custom_resource_is_judged_by_its_metadata():
    kind = sample_documents.widget()
    good = {"metadata": {"name": "x", "namespace": "y"}}
    assert validation.create(kind, good) == []
    assert validation.update(kind, good, good) == []
    assert validation.create(kind, {"metadata": {"name": "X", "namespace": "y"}})[0].field == "metadata.name"


def test_all_causes_come_back_in_one_answer():
    kind = sample_documents.kind("", "configmaps")
    causes = validation.create(kind, {"metadata": {"name": "A", "namespace": "a"}, "data": {"b c": ""}})
    error = status.invalid("ConfigMap", "", "A", causes)
    assert error.code == 422
    assert [cause["field"] for cause in error.document()["details"]["causes"]] == ["metadata.name", "data[b c]"]
