# SPDX-License-Identifier: Apache-2.0
"""The Pod of a certificate, as the ledger has it, is read back as it was; what names none is nobody."""

import pytest

from handfast.rules.mesh import holders
from handfast.rules.mesh.holders import Holder

WHOLE = Holder(namespace="shop", pod="web-1", uid="u-1", node="n1")


def test_what_was_written_is_read_back():
    assert WHOLE.text == "shop/web-1/u-1/n1"
    assert holders.read(WHOLE.text) == WHOLE
    assert holders.read("shop/web-1") == Holder(namespace="shop", pod="web-1")
    bare = Holder(namespace="shop", pod="web-1", uid="u-1")
    assert holders.read(bare.text) == bare


@pytest.mark.parametrize("text", ["", "shop", "/web-1", "shop/", "a/b/c", "a/b/c/d/e", "sha256:" + "a" * 64])
def test_what_names_no_pod_is_nobody(text):
    assert holders.read(text) == Holder()
    assert (Holder().text, Holder().revocable) == ("", "")


def test_a_pod_is_revocable_by_its_uid():
    assert WHOLE.revocable == "shop/web-1/u-1"
    assert holders.read("shop/web-1").revocable == "shop/web-1"
