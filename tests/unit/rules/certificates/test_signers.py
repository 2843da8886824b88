# SPDX-License-Identifier: Apache-2.0
"""What each signer signs and for how long; who may approve for it is tested with the admission of certificates."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from handfast import errors
from handfast.api import objects, signer_names
from handfast.pki import authority, certificates, keys, names, profiles
from handfast.rules import decision
from handfast.rules.certificates import kubelet, signers
from tests.unit.rules.csr_cases import CLIENT, HOUR, KEY, KUBELET_SERVING, MINUTE, NOW, SERVING, csr, serving

CLIENT_TEXT = "usages did not match [client auth digital signature key encipherment]"
SERVING_TEXT = "usages did not match [digital signature key encipherment server auth]"
ORGANIZATION = "subject organization is not system:nodes"
COMMON_NAME = "subject common name does not begin with system:node:"
NODE_NAME = "subject common name does not name a node after system:node:"
OTHERS = "subject has other attributes than common name and organization:"
MISSING = "missing required usage for client certificate: client auth"


def judged(document: dict[str, Any]) -> str:
    """The failure's text, empty when the signer signs."""
    verdict = signers.judge(kubelet.read(document))
    if isinstance(verdict, decision.Approve):
        return ""
    assert verdict.reason == "SignerValidationFailure"
    return verdict.sentence


@pytest.mark.parametrize(
    ("change", "failure"),
    [
        pytest.param({}, "", id="good"),
        pytest.param({"usages": (*CLIENT, "key encipherment")}, "", id="good, RSA"),
        pytest.param({"user": "joe"}, "", id="sent by anyone"),
        pytest.param({"o": ()}, ORGANIZATION, id="no organization"),
        pytest.param({"o": ("system:masters",)}, ORGANIZATION, id="masters"),
        pytest.param({"o": ("system:nodes", "system:masters")}, ORGANIZATION, id="masters beside"),
        pytest.param({"cn": "admin"}, COMMON_NAME, id="no node"),
        pytest.param({"cn": "system:node:"}, f"{NODE_NAME} {objects.SUBDOMAIN_TEXT}", id="no name"),
        pytest.param({"cn": "system:node:a\nb"}, f"{NODE_NAME} {objects.SUBDOMAIN_TEXT}", id="no name of a node"),
        pytest.param({"cn": "system:node:" + "a" * 253}, "", id="the longest name"),
        pytest.param(
            {"cn": "system:node:" + "a" * 254}, f"{NODE_NAME} must be no more than 253 bytes", id="a longer name"
        ),
        pytest.param({"others": (("2.5.4.11", "x"), ("1.2.3.4", "y"))}, f"{OTHERS} OU, 1.2.3.4", id="attributes"),
        pytest.param({"sans": ("DNS:a",)}, "DNS subjectAltNames are not allowed", id="DNS"),
        pytest.param({"sans": ("email:a@b",)}, "Email subjectAltNames are not allowed", id="e-mail"),
        pytest.param({"sans": ("IP:192.0.2.1",)}, "IP subjectAltNames are not allowed", id="IP"),
        pytest.param({"sans": ("URI:spiffe://a/b",)}, "URI subjectAltNames are not allowed", id="URI"),
        pytest.param({"usages": SERVING}, CLIENT_TEXT, id="serving"),
        pytest.param({"usages": (*CLIENT, "server auth")}, CLIENT_TEXT, id="serving too"),
        pytest.param({"usages": ("client auth",)}, CLIENT_TEXT, id="no digital signature"),
    ],
)
def test_kubelet_client(change: dict[str, Any], failure: str):
    assert judged(csr(**change)) == failure


@pytest.mark.parametrize(
    ("change", "sans", "failure"),
    [
        pytest.param({}, ["DNS:a"], "", id="DNS"),
        pytest.param({}, ["IP:192.0.2.1"], "", id="IP"),
        pytest.param({"usages": (*SERVING, "key encipherment")}, ["DNS:a"], "", id="RSA"),
        pytest.param({}, [], "DNS or IP subjectAltName is required", id="no name"),
        pytest.param({}, ["DNS:a", "email:a@b"], "Email subjectAltNames are not allowed", id="e-mail"),
        pytest.param({}, ["DNS:a", "URI:spiffe://a/b"], "URI subjectAltNames are not allowed", id="URI"),
        pytest.param({}, ["URI:spiffe://a/b"], "DNS or IP subjectAltName is required", id="URI only"),
        pytest.param({"o": ("system:masters",)}, ["DNS:a"], ORGANIZATION, id="masters"),
        pytest.param({"cn": "kubernetes"}, ["DNS:a"], COMMON_NAME, id="no node"),
        pytest.param({"cn": "system:node:"}, ["DNS:a"], f"{NODE_NAME} {objects.SUBDOMAIN_TEXT}", id="no name"),
        pytest.param({"others": (("2.5.4.6", "DE"),)}, ["DNS:a"], f"{OTHERS} C", id="attributes"),
        pytest.param({"usages": CLIENT}, ["DNS:a"], SERVING_TEXT, id="client"),
        pytest.param({"usages": (*SERVING, "client auth")}, ["DNS:a"], SERVING_TEXT, id="client too"),
    ],
)
def test_kubelet_serving(change: dict[str, Any], sans: list[str], failure: str):
    assert judged(serving(*sans, **change)) == failure


@pytest.mark.parametrize(
    ("usages", "failure"),
    [
        pytest.param(("client auth",), "", id="client auth alone"),
        pytest.param((*CLIENT, "key encipherment"), "", id="with both others"),
        pytest.param(("digital signature",), MISSING, id="no client auth"),
        pytest.param((), MISSING, id="nothing"),
        pytest.param(SERVING, "invalid usage for client certificate: server auth", id="server auth"),
        pytest.param((*CLIENT, "any"), "invalid usage for client certificate: any", id="any"),
        pytest.param((*SERVING, "any"), "invalid usage for client certificate: any", id="two, the first is named"),
        pytest.param(("signing", "client auth"), "invalid usage for client certificate: signing", id="signing"),
        pytest.param(("cert sign", "client auth"), "invalid usage for client certificate: cert sign", id="cert sign"),
    ],
)
def test_apiserver_client(usages: tuple[str, ...], failure: str):
    document = csr(signer=signer_names.KUBE_APISERVER_CLIENT, cn="jane", o=("a", "b"), sans=("DNS:a",), usages=usages)
    assert judged(document) == failure


@pytest.mark.parametrize(
    ("usages", "failure"),
    [
        pytest.param(("ocsp signing", "crl sign", "s/mime", "content commitment"), "", id="odd but known"),
        pytest.param((*CLIENT, "server auth"), "", id="client and server"),
        pytest.param(("cert sign",), "usage 'cert sign' is not given to a request", id="cert sign"),
        pytest.param(("encipher only",), "encipher only and decipher only go with key agreement", id="unwritable"),
    ],
)
def test_the_legacy_signer_signs_any_usage_but_cert_sign(usages: tuple[str, ...], failure: str):
    assert judged(csr(signer=signer_names.LEGACY_UNKNOWN, cn="anyone", o=(), usages=usages)) == failure


@pytest.mark.parametrize("signer", [signer_names.KUBE_APISERVER_CLIENT, signer_names.LEGACY_UNKNOWN])
def test_only_common_name_and_organizations_are_signed(signer: str):
    others = (("2.5.4.11", "unit"), ("2.5.4.11", "another"), ("1.2.3.4", "x"))
    document = csr(cn="jane", o=("dev", "ops"), others=others, signer=signer)
    assert judged(document) == ""
    facts = kubelet.read(document)
    assert facts.request.subject.other_types == ("OU", "1.2.3.4")
    assert signers.subject(facts) == names.Subject(common_name="jane", organizations=("dev", "ops"))
    plain = kubelet.read(csr(signer=signer))
    assert signers.subject(plain) is plain.request.subject


def test_unknown_usage():
    assert judged(csr(signer=signer_names.LEGACY_UNKNOWN, usages=("fly",))).startswith(
        "usage 'fly' is not known; one of: "
    )


@pytest.mark.parametrize("signer", signer_names.SIGNERS)
def test_every_signer_of_this_control_plane_has_a_verdict(signer: str):
    verdict = signers.judge(kubelet.read(csr(signer=signer)))
    assert isinstance(verdict, decision.Approve | decision.Deny)


def test_a_foreign_signer_is_not_asked():
    assert "example.com/own" not in signer_names.SIGNERS
    with pytest.raises(errors.Misuse, match=r"example\.com/own"):
        signers.judge(kubelet.read(csr(signer="example.com/own")))


@pytest.mark.parametrize(
    ("usages", "written"),
    [
        pytest.param(("signing", "client auth"), {"digital signature", "client auth"}, id="signing"),
        pytest.param(("client auth", "client auth"), {"client auth"}, id="client auth twice"),
        pytest.param(
            ("ocsp signing", "crl sign", "s/mime", "content commitment"),
            {"ocsp signing", "crl sign", "email protection", "content commitment"},
            id="four",
        ),
    ],
)
def test_usages_are_those_of_the_request(usages: tuple[str, ...], written: set[str]):
    facts = kubelet.read(csr(signer=signer_names.LEGACY_UNKNOWN, usages=usages))
    made, _ = signers.profile(facts, HOUR)
    root = authority.self_signed_ca(names.Subject(common_name="root"), keys.generate(), NOW)
    issued = root.issue(KEY.public, facts.request.subject, facts.request.sans, made, NOW)
    assert certificates.read(issued.der).usages == written
    assert made.name == "legacy-unknown"


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        pytest.param(30 * MINUTE, 30 * MINUTE, id="30m"),
        pytest.param(3 * HOUR, HOUR, id="3h, more than the signer's hour"),
        pytest.param(-MINUTE, 10 * MINUTE, id="-1m"),
        pytest.param(9 * MINUTE + MINUTE * 59 / 60, 10 * MINUTE, id="9m59s"),
        pytest.param(10 * MINUTE, 10 * MINUTE, id="10m"),
        pytest.param(None, HOUR, id="nothing asked for"),
    ],
)
def test_a_lifetime_lies_between_ten_minutes_and_the_signers(
    asked: datetime.timedelta | None, given: datetime.timedelta
):
    seconds = None if asked is None else int(asked.total_seconds())
    made, ttl = signers.profile(kubelet.read(csr(expirationSeconds=seconds)), HOUR)
    assert ttl == asked
    assert made.window(NOW, ttl) == (NOW - 5 * MINUTE, NOW + given)


@pytest.mark.parametrize(
    ("longest", "ca", "ends"),
    [
        pytest.param(HOUR, 8760 * HOUR, HOUR, id="1h"),
        pytest.param(24 * HOUR, 8760 * HOUR, 24 * HOUR - 5 * MINUTE, id="24h, backdating counted"),
        pytest.param(48 * HOUR, 24 * HOUR, 24 * HOUR - 5 * MINUTE, id="48h of a CA with 24h"),
    ],
)
def test_a_certificate_ends_with_its_ca_at_the_latest(
    longest: datetime.timedelta, ca: datetime.timedelta, ends: datetime.timedelta
):
    facts = kubelet.read(serving("DNS:a"))
    made, ttl = signers.profile(facts, longest)
    root = authority.self_signed_ca(names.Subject(common_name="root"), keys.generate(), NOW, profiles.ROOT_CA, ca)
    issued = root.issue(KEY.public, facts.request.subject, facts.request.sans, made, NOW, ttl)
    assert (issued.not_before, issued.not_after) == (NOW - 5 * MINUTE, NOW + ends)
    assert facts.signer_name == KUBELET_SERVING
