# SPDX-License-Identifier: Apache-2.0
"""Certificates put together from a template: the places where an encoding changes its form. The wide comparison with
the library's builder is tests/properties/test_template_properties.py.
"""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509

from handfast import errors
from handfast.pki import authority, certificates, keys, names, profiles
from tests.unit.pki.making import NOW

YEAR = profiles.YEAR
PUBLIC = keys.generate().public
NODE = names.Subject(common_name="system:node:a", organizations=("system:nodes",))
LONG = profiles.for_usages("long", ["client auth", "digital signature"], 100 * YEAR)


@pytest.fixture(scope="module")
def root() -> authority.Authority:
    hundred_years = profiles.Profile(name="ca", usages=profiles.ROOT_CA.usages, lifetime=100 * YEAR, is_ca=True)
    return authority.self_signed_ca(names.Subject(common_name="root"), keys.generate(), NOW, hundred_years)


@pytest.mark.parametrize("length", [1, 60, 100, 200, 300, 30_000])
def test_lengths_of_every_form(root: authority.Authority, length: int):
    subject = names.Subject(common_name="n" * length)
    assert certificates.read(root.issue(PUBLIC, subject, names.Sans(), LONG, NOW).der).subject == subject


@pytest.mark.parametrize(
    ("subject", "critical"),
    [
        pytest.param(NODE, False, id="a subject"),
        pytest.param(names.Subject(organizations=("b", "a", "b")), False, id="groups only, one of them twice"),
        pytest.param(names.Subject(), True, id="no subject"),
    ],
)
def test_names_are_written_as_the_library_writes_them(
    root: authority.Authority, subject: names.Subject, critical: bool
):
    sans = names.Sans.parse(
        ["DNS:a.example", "IP:192.0.2.1", "IP:2001:db8::1", "URI:spiffe://a/b", "email:a@b.example"]
    )
    issued = root.issue(PUBLIC, subject, sans, LONG, NOW)
    found = x509.load_der_x509_certificate(issued.der)
    assert found.subject == names.to_name(subject)
    assert found.extensions.get_extension_for_class(x509.SubjectAlternativeName).critical is critical
    assert certificates.read(issued.der).sans == sans


@pytest.mark.parametrize("years", [1, 23, 24, 60])
def test_times_are_written_before_and_after_2050(root: authority.Authority, years: int):
    ttl = years * YEAR
    issued = root.issue(PUBLIC, NODE, names.Sans(), LONG, NOW, ttl)
    facts = certificates.read(issued.der)
    assert (facts.not_before, facts.not_after) == (issued.not_before, issued.not_after) == LONG.window(NOW, ttl)
    late = datetime.datetime(2051, 3, 4, 5, 6, 7, tzinfo=datetime.UTC)
    assert certificates.read(root.issue(PUBLIC, NODE, names.Sans(), LONG, late, YEAR).der).not_before.year == 2051


def test_names_that_the_builder_would_not_write(root: authority.Authority):
    with pytest.raises(errors.Refused, match="not a bare e-mail address") as caught:
        root.issue(PUBLIC, NODE, names.Sans(email=("jane<jane@a.example>",)), LONG, NOW)
    assert caught.value.reason == "BadName"
    with pytest.raises(errors.Refused, match="not a DNS name"):
        root.issue(PUBLIC, NODE, names.Sans(dns=("a b",)), LONG, NOW)


def test_usages_of_one_request_do_not_reach_the_next(root: authority.Authority):
    first = root.issue(PUBLIC, NODE, names.Sans(), profiles.KUBELET_SERVING, NOW)
    second = root.issue(PUBLIC, NODE, names.Sans(), profiles.KUBELET_CLIENT, NOW)
    again = root.issue(PUBLIC, NODE, names.Sans(), profiles.KUBELET_SERVING, NOW)
    assert [certificates.read(issued.der).usages for issued in (first, second, again)] == [
        profiles.KUBELET_SERVING.usages,
        profiles.KUBELET_CLIENT.usages,
        profiles.KUBELET_SERVING.usages,
    ]
    assert len({issued.serial for issued in (first, second, again)}) == 3
