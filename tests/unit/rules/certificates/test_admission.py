# SPDX-License-Identifier: Apache-2.0
"""Who approves and signs, and which subject is refused. Which requests a signer honours is tested with the signers."""

from __future__ import annotations

import base64
import functools
from typing import Any

import pytest

from handfast.api import objects
from handfast.pki import keys, names, requests
from handfast.rules import access, decision
from handfast.rules.certificates import admission

SIGNER = "abc.com/xyz"
GROUPS = ("approvers",)


class Authorizer:
    """Allows one verb on one name, and remembers what it was asked."""

    def __init__(self, verb: str = "", name: str = "") -> None:
        self._allowed = (verb, name)
        self.asked: list[access.Attributes] = []

    def decide(self, attributes: access.Attributes) -> decision.Decision:
        self.asked.append(attributes)
        if (attributes.verb, attributes.name) == self._allowed:
            return decision.Approve("Test", "yes", "test")
        return decision.NotMine("Test", "no", "test")


def csr(signer: str = SIGNER, content: str = "", **status: Any) -> objects.Document:
    return {"metadata": {"name": "csr"}, "spec": {"signerName": signer, "request": content}, "status": status}


ALLOWANCES = [
    pytest.param("{verb}", SIGNER, True, id="exactly this signer"),
    pytest.param("{verb}", "abc.com/*", True, id="every signer of the domain"),
    pytest.param("{verb}", "abc.com/other", False, id="another signer of the domain"),
    pytest.param("{verb}", "notabc.com/xyz", False, id="another domain"),
    pytest.param("{verb}", "*", False, id="a bare star is only a name here"),
    pytest.param("update", SIGNER, False, id="another verb"),
    pytest.param("", "", False, id="nothing"),
]


@pytest.mark.parametrize("verb, name, allowed", ALLOWANCES)
def test_approving_needs_the_verb_for_the_signer_or_its_domain(verb: str, name: str, allowed: bool) -> None:
    authorizer = Authorizer(verb.format(verb="approve"), name)
    verdict = admission.approval(csr(), "jane", GROUPS, authorizer.decide)
    if allowed:
        assert isinstance(verdict, decision.Approve)
    else:
        assert isinstance(verdict, decision.Deny)
        assert verdict.sentence == 'user not permitted to approve requests with signerName "abc.com/xyz"'


@pytest.mark.parametrize("verb, name, allowed", ALLOWANCES)
@pytest.mark.parametrize(
    "new", [csr(certificate="Zm9v"), csr(conditions=[{"type": "Failed", "status": "True"}])], ids=["cert", "condition"]
)
def test_signing_needs_the_verb_for_the_signer_or_its_domain(
    verb: str, name: str, allowed: bool, new: objects.Document
) -> None:
    authorizer = Authorizer(verb.format(verb="sign"), name)
    verdict = admission.signing(new, csr(), "jane", GROUPS, authorizer.decide)
    if allowed:
        assert isinstance(verdict, decision.Approve)
    else:
        assert isinstance(verdict, decision.Deny)
        assert verdict.sentence == 'user not permitted to sign requests with signerName "abc.com/xyz"'


@pytest.mark.parametrize(
    "new, old",
    [
        pytest.param(csr(), csr(), id="nothing"),
        pytest.param(csr(conditions=[]), csr(), id="no conditions in two ways"),
        pytest.param(csr(certificate=""), csr(), id="no certificate in two ways"),
        pytest.param(csr(certificate="Zm9v"), csr(certificate="Zm9v"), id="the same certificate"),
        pytest.param(None, None, id="nothing at all"),
    ],
)
def test_a_status_that_does_not_change_needs_no_permission(new: Any, old: Any) -> None:
    authorizer = Authorizer()
    verdict = admission.signing(new, old, "jane", GROUPS, authorizer.decide)
    assert isinstance(verdict, decision.NotMine)
    assert authorizer.asked == []


def test_the_stored_signer_counts() -> None:
    authorizer = Authorizer("sign", "mine.com/signer")
    new = csr("mine.com/signer", certificate="Zm9v")
    verdict = admission.signing(new, csr(), "jane", GROUPS, authorizer.decide)
    assert isinstance(verdict, decision.Deny)
    assert [asked.name for asked in authorizer.asked] == [SIGNER, "abc.com/*"]


def test_what_the_authorizer_is_asked() -> None:
    authorizer = Authorizer("approve", SIGNER)
    admission.approval(csr(), "jane", GROUPS, authorizer.decide)
    assert authorizer.asked == [
        access.Attributes(
            user="jane",
            groups=GROUPS,
            verb="approve",
            is_resource=True,
            group="certificates.k8s.io",
            version="*",
            plural="signers",
            name=SIGNER,
        )
    ]


@functools.cache
def request(*organizations: str) -> str:
    subject = names.Subject(common_name="jane", organizations=organizations)
    return base64.b64encode(requests.build(subject, names.Sans(), keys.generate(keys.Kind.P256))).decode()


CLIENT = "kubernetes.io/kube-apiserver-client"
MASTERS = "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"


@pytest.mark.parametrize(
    "signer, organizations, sentence",
    [
        pytest.param(CLIENT, ("system:masters",), MASTERS, id="system:masters"),
        pytest.param(CLIENT, ("developers", "system:masters"), MASTERS, id="among others"),
        pytest.param(CLIENT, ("panda", "system:mastersx"), "", id="other groups"),
        pytest.param(CLIENT, (), "", id="no groups"),
        pytest.param("kubernetes.io/kubelet-serving", ("system:masters",), "", id="another signer"),
        pytest.param("abc.com/xyz", ("system:masters",), "", id="another domain"),
    ],
)
def test_no_client_certificate_names_the_group_of_administrators(
    signer: str, organizations: tuple[str, ...], sentence: str
) -> None:
    verdict = admission.subject(csr(signer, request(*organizations)))
    assert (verdict.sentence if isinstance(verdict, decision.Deny) else "") == sentence


@pytest.mark.parametrize("content", ["", "!", "é", base64.b64encode(b"not a request").decode()])
def test_unreadable_requests(content: str) -> None:
    verdict = admission.subject(csr(CLIENT, content))
    assert isinstance(verdict, decision.Deny)
    assert verdict.sentence.startswith("failed to parse CSR: ")


def test_other_signers_read_their_requests_themselves() -> None:
    sentence = "the request is not for kubernetes.io/kube-apiserver-client"
    for document in (csr("abc.com/xyz", "!"), None):
        verdict = admission.subject(document)
        assert isinstance(verdict, decision.NotMine)
        assert (verdict.reason, verdict.sentence) == ("OtherSigner", sentence)


def test_a_good_subject_is_told() -> None:
    verdict = admission.subject(csr(CLIENT, request("developers")))
    assert isinstance(verdict, decision.Approve)
    assert (verdict.reason, verdict.sentence) == ("Subject", "the subject is not one of administrators")


def test_a_signer_is_named_as_it_is_written() -> None:
    verdict = admission.approval(csr('bücher.example/"x'), "jane", GROUPS, Authorizer().decide)
    assert verdict.sentence == r'user not permitted to approve requests with signerName "bücher.example/\"x"'


def test_only_requests_of_ordinary_size_are_remembered() -> None:
    small = {"spec": {"request": request("small")}}
    assert admission.parse(small) is admission.parse(small)
    many = names.make_sans(dns=[f"n{number}.example" for number in range(300)])
    built = requests.build(names.Subject(common_name="jane"), many, keys.generate())
    large = {"spec": {"request": base64.b64encode(built).decode()}}
    assert admission.parse(large) == admission.parse(large)
    assert admission.parse(large) is not admission.parse(large)
