# SPDX-License-Identifier: Apache-2.0
"""Which of several CA certificates a key signs for."""

import datetime

import pytest

from handfast import errors
from handfast.pki import authority, issuers, keys, names, pem, profiles

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


def ca(name, key, now=NOW):
    return authority.self_signed_ca(names.Subject(common_name=name), key, now)


OLD_KEY, NEW_KEY = keys.generate(), keys.generate()
OLD, NEW = ca("old", OLD_KEY), ca("new", NEW_KEY)


@pytest.mark.parametrize(
    "text", [OLD.pem + NEW.pem, NEW.pem + OLD.pem, b"# the CAs\n" + OLD.pem + b"# next\n" + NEW.pem]
)
def test_the_key_alone_decides(text):
    assert issuers.choose(text, OLD_KEY).certificate == OLD.certificate
    assert issuers.choose(text, NEW_KEY).certificate == NEW.certificate


def test_of_two_for_one_key_the_one_that_ends_last():
    later = ca("old", OLD_KEY, NOW + DAY)
    for text in (OLD.pem + later.pem, later.pem + OLD.pem):
        assert issuers.choose(text, OLD_KEY).certificate == later.certificate


@pytest.mark.parametrize(
    "text, message", [(OLD.pem, "do not belong together"), (OLD.pem + OLD.pem, "none of the 2 CA certificates")]
)
def test_a_stranger_is_refused(text, message):
    with pytest.raises(errors.Refused, match=message) as caught:
        issuers.choose(text, NEW_KEY)
    assert caught.value.reason == "BadAuthority"


def test_a_leaf_is_no_ca():
    leaf = OLD.issue(NEW_KEY.public, names.Subject(common_name="x"), names.Sans(), profiles.CLIENT, NOW)
    with pytest.raises(errors.Refused, match="the certificate is not one of a CA") as caught:
        issuers.choose(OLD.pem + leaf.pem, NEW_KEY)
    assert caught.value.reason == "BadAuthority"


def test_the_signer_stands_first_and_each_once():
    text = issuers.ordered(OLD.pem + NEW.pem + OLD.pem, NEW)
    assert pem.certificates_from_pem(text) == [NEW.certificate.der, OLD.certificate.der]
