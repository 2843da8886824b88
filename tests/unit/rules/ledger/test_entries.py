# SPDX-License-Identifier: Apache-2.0
"""An entry of the ledger has one encoding, and a bound. The table of `ledger_entries.py` is here."""

from __future__ import annotations

import dataclasses
import hashlib
import json

import pytest

from handfast import errors
from handfast.pki import names
from handfast.rules.ledger import entries, segments
from tests.unit.rules.ledger_cases import entry, lines, opened


def test_there_and_back():
    one = entry(names=("CN=Jürgen", "DNS:a.example"))
    assert entries.decode(entries.encode(one)) == one
    assert entries.encode(one).isascii()
    assert list(json.loads(entries.encode(one))) == sorted(json.loads(entries.encode(one)))


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "nonsense",
        "{}",
        "[" * 100_000,
        lines(1)[0].replace('"serial"', '"cereal"'),
        lines(1)[0] + " ",
        lines(1)[0].replace('"rule":"nodeclient"', '"rule":1'),
        lines(1)[0].replace('"CN=system:node:node-1"', "7"),
        lines(1)[0].replace('"names":["CN=system:node:node-1","O=system:nodes"]', '"names":7'),
        lines(1)[0].replace("2030-01-01T12:00:00Z", "yesterday"),
        lines(1)[0].replace("2030-01-01T12:00:00Z", "2030-01-01T12:00:00+00:00"),
        lines(1)[0].replace('"2030-01-01T12:00:00Z"', "7"),
    ],
)
def test_one_encoding_only(line: str):
    with pytest.raises(errors.Refused) as refused:
        entries.decode(line)
    assert refused.value.reason == "MalformedEntry"


def test_missing_fields_are_told():
    with pytest.raises(errors.Refused) as refused:
        entries.decode("{}")
    fields = sorted(field.name for field in dataclasses.fields(entries.Entry))
    wanted = f"an entry has exactly the fields {', '.join(fields)}, of which token_maker may be left out"
    assert refused.value.message == wanted


def test_an_entry_without_the_maker_of_its_token_is_written_as_it_was_before_there_was_one():
    # As the first version wrote it, byte for byte: its link in the chain stays the same.
    old = (
        '{"authenticated_by":"bootstrap-token","certificate":"c","issued_at":"2030-01-01T12:00:00Z","key_fingerprint":"k",'
        '"names":["CN=n"],"not_after":"2030-01-02T12:00:00Z","request":"r","requester":"system:bootstrap:abcdef",'
        '"rule":"NodeJoin","serial":"1","signer":"s","token_id":"abcdef"}'
    )
    read = entries.decode(old)
    assert (read.token_maker, entries.encode(read)) == ("", old)
    new = entries.encode(dataclasses.replace(read, token_maker="alice"))
    assert entries.decode(new).token_maker == "alice"
    assert json.loads(new) == {**json.loads(old), "token_maker": "alice"}
    # There is one encoding: an empty one is left out.
    with pytest.raises(errors.Refused, match="in another way"):
        entries.decode(new.replace('"token_maker":"alice"', '"token_maker":""'))


def test_the_names_of_a_certificate():
    subject = names.Subject(common_name="system:node:a", organizations=("system:nodes",))
    sans = names.make_sans(dns=["a.example"], ip=["192.0.2.1"])
    assert entries.names_of(subject, sans) == (
        "CN=system:node:a",
        "O=system:nodes",
        "DNS:a.example",
        "IP:192.0.2.1",
    )


@pytest.mark.parametrize(
    ("user", "credential", "found"),
    [
        ("system:bootstrap:abcdef", None, ("bootstrap-token", "abcdef")),
        # A certificate may name anybody; the server says that it was one.
        ("system:bootstrap:abcdef", "X509SHA256=00ff", ("x509", "00ff")),
        ("system:bootstrap:abcdef", "JTI=1-2", ("service-account", "1-2")),
        ("system:serviceaccount:a:b", "X509SHA256=00ff", ("x509", "00ff")),
        ("system:node:a", "X509SHA256=00ff", ("x509", "00ff")),
        ("system:node-recovery:a", "X509SHA256=00ff", ("node-recovery", "00ff")),
        ("system:serviceaccount:a:b", "JTI=1-2", ("service-account", "1-2")),
        ("system:serviceaccount:a:b", None, ("service-account", "")),
        ("jane", None, ("unknown", "")),
        ("jane", "other=1", ("unknown", "")),
    ],
)
def test_how_somebody_authenticated(user: str, credential: str | None, found: tuple[str, str]):
    extra = {} if credential is None else {"authentication.kubernetes.io/credential-id": [credential]}
    assert entries.authenticated_by(user, ("system:node-recovery", "system:authenticated"), extra) == found


def test_only_the_server_says_that_a_node_recovers():
    extra = {"authentication.kubernetes.io/credential-id": ["X509SHA256=00ff"]}
    found = entries.authenticated_by("system:node-recovery:a", ("system:authenticated",), extra)
    assert found == ("x509", "00ff")


WORST = "\U0001f600" * 50_000


def test_an_entry_has_a_bound():
    texts = [field.name for field in dataclasses.fields(entries.Entry) if field.type == "str"]
    assert len(texts) == 10
    for worst in (WORST, "a" * 47_000, "\x01" * 47_000):
        every = entry(1, names=(worst, *["DNS:a.example"] * 5000), **dict.fromkeys(texts, worst))
        line = entries.encode(every)
        assert len(line) <= entries.MAX_LINE
        assert entries.decode(line) == entries.bounded(every) == entries.bounded(entries.bounded(every))
    # The bound of each text is what the whole is made of.
    full = entry(1, names=("a" * 504, ""), **dict.fromkeys(texts, "a" * 94))
    full = dataclasses.replace(full, requester="a" * 278, request="a" * 254)
    assert entries.bounded(full) == full
    assert len(entries.encode(full)) <= entries.MAX_LINE
    # One character more of any is too many; quotes, commas and brackets count.
    assert entries.bounded(dataclasses.replace(full, names=("a" * 505, ""))).names == ("a" * 505, "")
    assert entries.bounded(dataclasses.replace(full, names=("a" * 506, ""))).names != ("a" * 506, "")
    for field in texts:
        longer = getattr(full, field) + "a"
        assert getattr(entries.bounded(dataclasses.replace(full, **{field: longer})), field) != longer


def test_what_is_too_long_is_its_digest():
    name = "CN=system:node:" + "a" * 253
    many = tuple(f"DNS:n{number}.example" for number in range(200))
    found = entries.decode(entries.encode(entry(names=(name, "O=system:nodes", *many), request="r" * 253)))
    # A node is found by its name, whatever else is in the certificate; and others are other names.
    assert found.names[:3] == (name, "O=system:nodes", "DNS:n0.example")
    assert found.names[-1].startswith("sha256:")
    assert (len(found.names), found.request) == (11, "r" * 253)
    other = entries.decode(
        entries.encode(entry(names=(name, "O=system:nodes", *many[:-1], "DNS:x"), request="r" * 253))
    )
    assert found.names[:-1] == other.names[:-1]
    assert found.names != other.names
    # Who asks may be anybody.
    by = entries.decode(entries.encode(entry(requester="u" * 3000)))
    assert by.requester == "sha256:" + hashlib.sha256(f'"{"u" * 3000}"'.encode()).hexdigest()
    assert by.names == entry().names
    # In a line with room nothing is shortened.
    long = entry(names=tuple(f"DNS:n{number}.example" for number in range(60)), rule="r" * 200)
    assert entries.decode(entries.encode(long)) == long


def test_a_longer_line_is_not_taken():
    line = lines(1)[0].replace('"rule":"nodeclient"', f'"rule":"{"r" * 2000}"')
    with pytest.raises(errors.Refused, match="in another way"):
        entries.decode(line)


def test_signers_of():
    stored = (*opened(1, 2).entries, "x 3 {}")
    other = segments.stored_lines(segments.following(None), lines(1, signer="example.com/a"))
    assert entries.signers_of((*stored, *other)) == ["example.com/a", entry().signer]
    assert entries.signers_of(()) == []


@pytest.mark.parametrize(
    ("approval", "method", "serving", "own", "rule"),
    [
        ("AutoApproved", "bootstrap-token", False, False, "NodeJoin"),
        ("AutoApproved", "x509", False, True, "NodeRenewal"),
        ("AutoApproved", "node-recovery", False, False, "NodeRecovery"),
        ("AutoApproved", "x509", True, True, "NodeServing"),
        ("HandfastApprove", "bootstrap-token", False, False, "ByHand: HandfastApprove"),
        ("KubectlApprove", "x509", False, True, "ByHand: KubectlApprove"),
        ("", "x509", False, True, "ByHand"),
    ],
)
def test_which_rule_said_yes(approval, method, serving, own, rule):
    signer = "kubernetes.io/kubelet-serving" if serving else "kubernetes.io/kube-apiserver-client-kubelet"
    assert entries.rule_of(approval, method, signer, is_own_name=own) == rule


@pytest.mark.parametrize(
    ("serving", "machine", "rule"),
    [
        (False, "Machine fleet/w1", "MachineJoin: Machine fleet/w1"),
        (True, "Machine fleet/w1", "MachineServing: Machine fleet/w1"),
        (True, "", "MachineServing"),
    ],
)
def test_a_machines_join_names_its_machine(serving, machine, rule):
    signer = "kubernetes.io/kubelet-serving" if serving else "kubernetes.io/kube-apiserver-client-kubelet"
    said = entries.rule_of("NodeCSRApprove", "service-account", signer, is_own_name=serving, machine=machine)
    assert said == rule
    # What only claims to be matched was approved by hand.
    by_hand = entries.rule_of("HandfastApprove", "service-account", signer, is_own_name=serving, machine=machine)
    assert by_hand == "ByHand: HandfastApprove"
