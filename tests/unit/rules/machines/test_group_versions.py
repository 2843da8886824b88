# SPDX-License-Identifier: Apache-2.0
"""Which kinds of Machine are followed: what an operator may name."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.rules.machines import group_versions


def test_without_a_word_the_machines_of_openshift_are_followed():
    assert group_versions.parse(()) == group_versions.DEFAULT
    assert [row.group for row in group_versions.DEFAULT] == ["machine.openshift.io"]


def test_a_group_alone_leaves_the_version_to_the_server():
    rows = group_versions.parse(("machine.openshift.io", "cluster.x-k8s.io"))
    assert [row.versions for row in rows] == [("v1beta1",), ("v1beta2", "v1beta1")]


def test_a_version_that_is_named_is_the_only_one():
    (row,) = group_versions.parse(("cluster.x-k8s.io/v1beta1",))
    assert row.versions == ("v1beta1",)


@pytest.mark.parametrize(
    ("texts", "message", "hint"),
    [
        (["cluster.k8s.io"], "there are no Machines of 'cluster.k8s.io'", "machine.openshift.io, cluster.x-k8s.io"),
        (["cluster.x-k8s.io/v1"], "the version 'v1' cannot be read", "cluster.x-k8s.io/v1beta2"),
        (["machine.openshift.io/"], "the version '' cannot be read", "write machine.openshift.io, or"),
        (["cluster.x-k8s.io", "cluster.x-k8s.io/v1beta1"], "named more than once", "each group once"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_what_can(texts, message, hint):
    with pytest.raises(errors.Refused) as refused:
        group_versions.parse(texts)
    assert refused.value.reason == "BadGroupVersion"
    assert message in refused.value.message
    assert hint in (refused.value.hint or "")
