# SPDX-License-Identifier: Apache-2.0
"""Cells of Ingresses and their classes beyond the samples of `test_printers`."""

from __future__ import annotations

import datetime

from handfast.api.printing import traffic

NOW = datetime.datetime(2026, 1, 2, 4, 4, 5, tzinfo=datetime.UTC)


def test_an_ingress_without_anything_serves_every_host():
    assert traffic.ingress({}, NOW)[:4] == ["<none>", "*", "", "80"]


def test_three_hosts_are_shown_and_the_rest_counted():
    rules = [{"host": f"{letter}.example.com"} for letter in "abcde"]
    assert traffic.ingress({"spec": {"rules": rules}}, NOW)[1] == (
        "a.example.com,b.example.com,c.example.com + 2 more..."
    )


def test_the_default_class_says_so():
    annotations = {"ingressclass.kubernetes.io/is-default-class": "true"}
    document = {
        "metadata": {"name": "a", "annotations": annotations},
        "spec": {"parameters": {"kind": "K", "name": "n"}},
    }
    assert traffic.ingressclass(document, NOW)[:3] == ["a (default)", "", "K/n"]
    assert traffic.ingressclass({}, NOW)[2] == "<none>"
