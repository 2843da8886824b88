# SPDX-License-Identifier: Apache-2.0
"""Cells of certificates and storage classes beyond the samples of `test_printers`."""

from __future__ import annotations

import datetime

import pytest

from handfast.api import kinds
from handfast.api.printing import access, printers

NOW = datetime.datetime(2026, 1, 2, 4, 4, 5, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("types", "certificate", "text"),
    [
        ([], "", "Pending"),
        (["Approved"], "", "Approved"),
        (["Approved"], "eA==", "Approved,Issued"),
        (["Denied", "Approved"], "", "Denied"),
        (["Approved", "Failed"], "", "Approved,Failed"),
    ],
)
def test_condition_of_a_request(types, certificate, text):
    status = {"conditions": [{"type": name} for name in types], "certificate": certificate}
    assert access.certificatesigningrequest({"status": status}, NOW)[-1] == text


@pytest.mark.parametrize("seconds", [None, "600", 0, -5, 2**62])
def test_a_request_without_a_sensible_duration(seconds):
    assert access.certificatesigningrequest({"spec": {"expirationSeconds": seconds}}, NOW)[3] == "<none>"


def test_the_default_storage_class_is_marked():
    kind = kinds.row("storageclasses", "storage.k8s.io")
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    assert printers.cells(kind, {"metadata": {"name": "fast", "annotations": annotations}}, NOW)[0] == "fast (default)"


@pytest.mark.parametrize(("value", "shown"), [(True, True), (False, False), (None, False), ("true", False)])
def test_whether_volumes_of_a_storage_class_grow(value, shown):
    cells = access.storageclass({"provisioner": "p", "allowVolumeExpansion": value}, NOW)
    assert cells[:4] == ["p", "Delete", "Immediate", shown]


def test_the_words_of_a_storage_class_are_its_own():
    words = {"provisioner": "p", "reclaimPolicy": "Retain", "volumeBindingMode": "WaitForFirstConsumer"}
    assert access.storageclass(words, NOW)[:3] == ["p", "Retain", "WaitForFirstConsumer"]


def test_a_role_without_a_time():
    assert access.created_at({}, NOW) == ["<unknown>"]


def test_params_of_policies_are_shown_where_there_are_any():
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    assert access.admission_policy({"spec": {"paramKind": kind, "validations": [{}]}}, NOW)[:2] == [1, "v1/ConfigMap"]
    assert access.admission_policy({}, NOW)[:2] == [0, "<unset>"]
    cells = [
        access.policy_binding({"spec": {"policyName": "p", **spec}}, NOW)[:2]
        for spec in ({}, {"paramRef": {"name": "a"}}, {"paramRef": {"name": "a", "namespace": "b"}})
    ]
    assert cells == [["p", "<unset>"], ["p", "*/a"], ["p", "b/a"]]
