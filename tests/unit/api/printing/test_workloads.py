# SPDX-License-Identifier: Apache-2.0
"""Cells of the workloads beyond the samples of `test_printers`."""

from __future__ import annotations

import datetime

import pytest

from handfast.api.printing import workloads

NOW = datetime.datetime(2026, 1, 2, 4, 4, 5, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ({}, "<none>"),
        ({"matchLabels": {"b": "2", "a": "1"}}, "a=1,b=2"),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, "!a"),
        ({"matchExpressions": [{"key": "a", "operator": "Strange"}]}, "<error>"),
    ],
)
def test_selector_text(selector, text):
    assert workloads.selector_text(selector) == text


def _true(name):
    return {"conditions": [{"type": name, "status": "True"}]}


@pytest.mark.parametrize(
    ("document", "word"),
    [
        ({}, "Running"),
        ({"status": _true("Failed")}, "Failed"),
        ({"status": _true("Complete"), "metadata": {"deletionTimestamp": "x"}}, "Complete"),
        ({"metadata": {"deletionTimestamp": "x"}, "status": _true("Suspended")}, "Terminating"),
        ({"status": _true("Suspended")}, "Suspended"),
        ({"status": _true("FailureTarget")}, "FailureTarget"),
        ({"status": _true("SuccessCriteriaMet")}, "SuccessCriteriaMet"),
    ],
)
def test_status_of_a_job(document, word):
    assert workloads.job(document, NOW)[0] == word


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"completions": 5}, "2/5"),
        ({"parallelism": 3}, "2/1 of 3"),
        ({"parallelism": 2}, "2/1 of 2"),
        ({"parallelism": 1}, "2/1"),
        ({}, "2/1"),
    ],
)
def test_completions_of_a_job(spec, text):
    assert workloads.job({"spec": spec, "status": {"succeeded": 2}}, NOW)[1] == text


def test_duration_of_a_job():
    assert workloads.job({}, NOW)[2] == ""
    status = {"startTime": "2026-01-02T04:00:05Z", "completionTime": "2026-01-02T04:02:35Z"}
    assert workloads.job({"status": status}, NOW)[2] == "2m30s"


def test_a_cron_job_that_never_ran():
    cells = workloads.cronjob({"spec": {"schedule": "@daily", "suspend": True}}, NOW)
    assert cells[:5] == ["@daily", "<none>", "True", 0, "<none>"]


def test_a_replication_controller_selects_by_plain_labels():
    assert workloads.replicationcontroller({"spec": {"selector": {"a": "b"}}}, NOW)[-1] == "a=b"


def test_a_scale_says_what_is_asked_for_and_what_there_is():
    metadata = {"name": "s", "creationTimestamp": "2030-01-01T00:00:00Z"}
    document = {"metadata": metadata, "spec": {"replicas": 3}, "status": {"replicas": 2}}
    now = datetime.datetime(2030, 1, 1, 1, tzinfo=datetime.UTC)
    assert workloads.scale_cells(document, now) == ["s", 3, 2, "60m"]


@pytest.mark.parametrize(("api_version", "text"), [("apps/v1", "statefulset.apps/web"), ("v1", "statefulset/web")])
def test_a_revision_names_its_controller(api_version, text):
    owner = {"apiVersion": api_version, "kind": "StatefulSet", "name": "web", "controller": True}
    document = {"metadata": {"ownerReferences": [{"kind": "Other"}, owner]}, "revision": 2}
    assert workloads.controllerrevision(document, NOW)[:2] == [text, 2]
