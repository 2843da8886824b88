# SPDX-License-Identifier: Apache-2.0
"""Which chains are good for which purpose, and the reason of every refusal; one table, checked with OpenSSL as well."""

from __future__ import annotations

import datetime
import pathlib
import shutil
import subprocess
from dataclasses import replace

import pytest
from cryptography.x509 import ExtendedKeyUsage, ObjectIdentifier

from handfast import errors
from handfast.pki import bundles, chains, names, pem, refusals
from tests.unit.pki.chain_cases import ADDRESS, CASES, HOST, Case
from tests.unit.pki.making import CLIENT, DAY, NOW, SERVER, Made, ca, certificate, leaf

VECTORS = pathlib.Path(__file__).parents[2] / "vectors" / "pki"


def ask(asked: Case, now: datetime.datetime = NOW) -> chains.Verified:
    chain = [made if isinstance(made, bytes) else made.der for made in asked.chain]
    return chains.verify(chain, bundles.TrustBundle.of(root.der for root in asked.roots), asked.purpose, now)


@pytest.mark.parametrize("title", list(CASES))
def test_every_case_of_the_table_has_its_verdict_and_reason(title: str):
    asked = CASES[title]()
    if not asked.reason:
        verified = ask(asked)
        assert isinstance(asked.chain[0], Made)
        assert verified.subject.common_name == "jane"
        assert verified.serial.lstrip("0") == f"{asked.chain[0].certificate.serial_number:x}"
        verified.require_current(NOW)
        return
    with pytest.raises(chains.ChainRefused) as caught:
        ask(asked)
    assert caught.value.reason == asked.reason
    assert caught.value.message


@pytest.mark.parametrize(
    ("purpose", "made_for", "word"),
    [(chains.Client(), SERVER, "clientAuth"), (chains.Server("api.example"), CLIENT, "serverAuth")],
)
def test_the_purpose_that_is_missing_is_named(purpose: chains.Client | chains.Server, made_for: ObjectIdentifier, word):
    root = ca()
    with pytest.raises(chains.ChainRefused, match=f"is not meant for {word}$"):
        ask(Case([leaf(root, made_for, sans=[HOST])], [root], purpose=purpose))


def test_a_peer_need_not_say_that_it_is_no_ca():
    root = ca()
    plain = certificate("jane", root, [(ExtendedKeyUsage([CLIENT]), False)])
    assert ask(Case([plain], [root])).subject.common_name == "jane"


def test_a_key_that_nobody_can_read_is_a_weak_one():
    """On a curve that the library does not know."""
    root = ca()
    p256, unknown = bytes.fromhex("06082a8648ce3d030107"), bytes.fromhex("06082a8648ce3d030177")
    made = leaf(root, CLIENT).der.replace(p256, unknown, 1)
    with pytest.raises(chains.ChainRefused, match="kind or curve is not supported") as caught:
        ask(Case([made], [root], "WeakKey"))
    assert caught.value.reason == "WeakKey"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
@pytest.mark.parametrize("title", list(CASES))
def test_openssl_agrees(title: str, tmp_path: pathlib.Path):
    asked = CASES[title]()
    if not asked.roots or not asked.chain or bytes in {type(made) for made in asked.chain}:
        assert asked.reason
        return
    (tmp_path / "roots.pem").write_bytes(b"".join(root.pem for root in asked.roots))
    (tmp_path / "rest.pem").write_bytes(b"".join(made.pem for made in asked.chain[1:] if isinstance(made, Made)))
    (tmp_path / "peer.pem").write_bytes(asked.chain[0].pem if isinstance(asked.chain[0], Made) else b"")
    command = ["openssl", "verify", "-attime", str(int(NOW.timestamp())), "-auth_level", "2"]
    command += ["-no-CApath", "-no-CAstore", "-CAfile", str(tmp_path / "roots.pem")]
    if len(asked.chain) > 1:
        command += ["-untrusted", str(tmp_path / "rest.pem")]
    if isinstance(asked.purpose, chains.Server):
        kind = "-verify_ip" if asked.purpose.name[0].isdigit() else "-verify_hostname"
        command += ["-purpose", "sslserver", kind, asked.purpose.name.removesuffix(".")]
    else:
        command += ["-purpose", "sslclient"]
    answer = subprocess.run([*command, str(tmp_path / "peer.pem")], capture_output=True, text=True, check=False)
    wanted = (not asked.reason) if asked.openssl is None else asked.openssl
    assert (answer.returncode == 0) is wanted, answer.stdout + answer.stderr


def test_facts_of_a_good_chain():
    root = ca(not_before=NOW - 5 * DAY, not_after=NOW + 3 * DAY)
    middle = ca("middle", root, not_before=NOW - DAY / 4, not_after=NOW + 9 * DAY)
    peer = leaf(middle, CLIENT, sans=[HOST, ADDRESS], not_before=NOW - 2 * DAY, not_after=NOW + 8 * DAY)
    verified = ask(Case([peer, middle], [root]))
    assert (verified.not_before, verified.not_after) == (NOW - 2 * DAY, NOW + 8 * DAY)
    # The path is in force from the intermediate's beginning to the root's end.
    assert (verified.valid_from, verified.valid_until) == (NOW - DAY / 4, NOW + 3 * DAY)
    assert verified.sans.texts() == ["DNS:api.example", "IP:192.0.2.1"]
    assert verified.anchor == refusals.fingerprint_of(root.certificate)
    assert verified.fingerprint == refusals.fingerprint_of(peer.certificate)
    verified.require_current(NOW + 3 * DAY)
    with pytest.raises(chains.ChainRefused) as caught:
        verified.require_current(NOW + 3 * DAY + datetime.timedelta(seconds=1))
    assert caught.value.reason == "Expired"
    with pytest.raises(chains.ChainRefused) as caught:
        verified.require_current(NOW - DAY)
    assert caught.value.reason == "NotYetValid"


@pytest.mark.parametrize(
    ("moment", "reason"),
    [
        (NOW - DAY, ""),
        (NOW + DAY, ""),
        (NOW + DAY + datetime.timedelta(seconds=1), "Expired"),
        (NOW - DAY - datetime.timedelta(seconds=1), "NotYetValid"),
    ],
)
def test_the_window_and_the_verdict_agree_at_its_ends(moment: datetime.datetime, reason: str):
    asked = CASES["no SAN, as client"]()
    verified = ask(asked)
    for check in (lambda: ask(asked, moment), lambda: verified.require_current(moment)):
        if not reason:
            check()
            continue
        with pytest.raises(chains.ChainRefused) as caught:
            check()
        assert caught.value.reason == reason


def test_a_millisecond_outside_the_window_is_outside():
    asked = CASES["no SAN, as client"]()
    millisecond = datetime.timedelta(milliseconds=1)
    for moment, reason in ((NOW + DAY + millisecond, "Expired"), (NOW - DAY - millisecond, "NotYetValid")):
        with pytest.raises(chains.ChainRefused) as caught:
            ask(asked, moment)
        assert caught.value.reason == reason


def test_issuer_whose_name_cannot_be_read():
    root = ca()
    middle = ca("middle", root)
    broken = middle.der.replace(b"\x0c\x06middle", b"\x0c\x06midd\xff\xff")
    with pytest.raises(chains.ChainRefused) as caught:
        ask(Case([leaf(middle, CLIENT), broken], [root]))
    assert caught.value.reason == "Malformed"


def test_long_names_do_not_warn():
    root = ca()
    long = names.to_name(names.Subject(common_name="system:node:" + "n" * 100))
    with pytest.raises(chains.ChainRefused) as caught:
        ask(Case([leaf(root, SERVER, subject=long), root], [root]))
    assert caught.value.reason == "WrongPurpose"


def test_now_in_another_zone_is_the_same_instant():
    asked = CASES["no SAN, as client"]()
    zone = datetime.timezone(datetime.timedelta(hours=9))
    assert ask(asked, NOW.astimezone(zone)) == ask(asked)


def test_now_without_zone_is_a_bug():
    with pytest.raises(errors.Misuse):
        ask(CASES["no SAN, as client"](), NOW.replace(tzinfo=None))


def test_expected_name_must_be_one():
    with pytest.raises(errors.Refused, match="is not a DNS name"):
        ask(replace(CASES["good server by name"](), purpose=chains.Server("a b")))


def test_signed_with_sha1():
    root = pem.certificates_from_pem((VECTORS / "sha1-ca.pem").read_bytes())
    peer = pem.certificates_from_pem((VECTORS / "sha1-leaf.pem").read_bytes())
    now = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
    with pytest.raises(chains.ChainRefused) as caught:
        chains.verify(peer, bundles.TrustBundle.of(root), chains.Client(), now)
    assert caught.value.reason == "WeakSignature"


def test_signed_with_an_unknown_algorithm():
    root = ca()
    known, unknown = bytes.fromhex("06082a8648ce3d040302"), bytes.fromhex("06082a8648ce3d04037f")
    with pytest.raises(chains.ChainRefused) as caught:
        ask(Case([leaf(root, CLIENT).der.replace(known, unknown)], [root]))
    assert caught.value.reason == "WeakSignature"


def test_the_walk_for_the_reason_is_bounded(monkeypatch: pytest.MonkeyPatch):
    root = ca()
    middle = ca("middle", root)
    asked = Case([leaf(middle, CLIENT, not_after=NOW - DAY / 2), ca("middle"), middle], [root])
    for most, reason in ((refusals.MAX_SIGNATURES, "Expired"), (1, "UnknownAuthority")):
        monkeypatch.setattr(refusals, "MAX_SIGNATURES", most)
        with pytest.raises(chains.ChainRefused) as caught:
            ask(asked)
        assert caught.value.reason == reason
