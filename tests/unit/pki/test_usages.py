# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' usage words and X.509 say the same; it does not test which usages are permitted."""

from __future__ import annotations

import pytest

from handfast import errors
from handfast.pki import usages


def test_the_23_words():
    assert len(usages.ALL) == 23


def test_words_to_extensions_and_back():
    words = usages.ALL - {"signing", "s/mime"}
    key, extended = usages.key_usage(words), usages.extended_key_usage(words)
    assert key is not None
    assert extended is not None
    assert usages.words_of(key, extended) == words


def test_order_of_extended_usages_is_that_of_go():
    extended = usages.extended_key_usage(["client auth", "server auth", "any"])
    assert extended is not None
    assert [oid.dotted_string for oid in extended] == ["2.5.29.37.0", "1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"]


def test_two_words_for_one_thing():
    assert usages.canonical(["signing", "digital signature"]) == {"digital signature"}
    mail = usages.extended_key_usage(["s/mime", "email protection"])
    assert mail is not None
    assert len(list(mail)) == 1
    assert usages.words_of(None, mail) == {"email protection"}


def test_nothing_is_no_extension():
    assert usages.key_usage(["client auth"]) is None
    assert usages.extended_key_usage(["digital signature"]) is None
    assert usages.words_of(None, ()) == frozenset()


def test_bits_that_are_not_set():
    assert usages.words_of(usages.key_usage(["cert sign"]), ()) == {"cert sign"}
    assert usages.words_of(usages.key_usage(["key agreement"]), ()) == {"key agreement"}


def test_unknown_and_impossible_usages_are_refused():
    with pytest.raises(errors.Refused, match="'fly' is not known"):
        usages.canonical(["fly"])
    with pytest.raises(errors.Refused, match="go with key agreement"):
        usages.key_usage(["encipher only"])
