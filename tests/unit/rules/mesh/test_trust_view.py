# SPDX-License-Identifier: Apache-2.0
"""What is shown of the roots: which signs, and who depends on which."""

from __future__ import annotations

import dataclasses

import pytest

from handfast.rules.mesh import issuer, trust_view
from tests.unit.rules.mesh.rotation_cases import (
    BOTH,
    MESH,
    NEW,
    NEW_ROOT,
    NEW_SIGNER,
    NOW,
    OLD,
    OLD_ROOT,
    OLD_SIGNER,
    Step,
    after,
    agent,
    known,
    stock,
)

SEEN = known(
    agent("shop/web-1", OLD_ROOT),
    agent("shop/web-2", OLD_ROOT, NEW_ROOT, signer=NEW_SIGNER),
    stock("shop/old-1", OLD_ROOT),
    stock("shop/old-2", OLD_ROOT, signer="another"),
)


def test_each_root_is_shown_with_those_who_believe_it_and_depend_on_it():
    both = dataclasses.replace(NEW, anchors=BOTH.to_pem())
    seen = trust_view.view(both, after(Step.ADD, Step.SWITCH), SEEN, MESH, NOW)
    old, new = sorted(seen.roots, key=lambda root: root.signs)
    assert (old.fingerprint, old.agents, old.stock, old.holders) == (
        OLD_ROOT,
        ("shop/web-1", "shop/web-2"),
        ("shop/old-1", "shop/old-2"),
        2,
    )
    assert (new.fingerprint, new.signs, new.agents, new.stock, new.holders) == (
        NEW_ROOT,
        True,
        ("shop/web-2",),
        (),
        1,
    )
    assert (seen.signer, seen.problem, seen.unknown) == (NEW_SIGNER, "", 1)
    assert (len(seen.agents), len(seen.stock)) == (2, 2)
    assert seen.signs_until < old.until


def test_an_issuer_that_is_not_believed_signs_nothing_and_says_why():
    wrong = dataclasses.replace(OLD, anchors=NEW.anchors)
    seen = trust_view.view(wrong, None, SEEN, MESH, NOW)
    assert [(root.fingerprint, root.signs, root.holders) for root in seen.roots] == [(NEW_ROOT, False, 0)]
    assert "would not be believed" in seen.problem
    assert (seen.signer, seen.rotation) == (OLD_SIGNER, None)


def test_without_anchors_there_is_nothing_to_show():
    with pytest.raises(issuer.Unfit):
        trust_view.view(dataclasses.replace(OLD, anchors=b""), None, SEEN, MESH, NOW)
