# SPDX-License-Identifier: Apache-2.0
"""Whatever a certificate or a request holds, this room reads it or refuses it, and nothing else ever comes out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import given, settings
from hypothesis import strategies as st

from handfast import errors
from handfast.pki import (
    authority,
    bundles,
    certificates,
    chains,
    fences,
    issuers,
    keys,
    names,
    pairs,
    pem,
    pins,
    requests,
)
from tests.unit.pki import making, odd

FENCE = fences.Fence("it cannot be read", reason="Malformed")
ROOT = making.ca()
GOOD = making.leaf(ROOT, making.CLIENT, sans=[x509.DNSName("a.example.com")])
OTHER = keys.generate()
REQUEST = requests.build(certificates.read(GOOD.der).subject, certificates.read(GOOD.der).sans, OTHER)


def panic() -> type[BaseException]:
    """The class that a panic of the library has: no `Exception`, and not to be imported."""
    return type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})


def _chain(purpose: chains.Client | chains.Server, *chain: bytes) -> None:
    chains.verify(chain, bundles.TrustBundle.of([ROOT.der]), purpose, making.NOW)


def _anchored(der: bytes) -> None:
    chains.verify([GOOD.der], bundles.TrustBundle.of([der]), chains.Client(), making.NOW)


# Everything of this room that is given a certificate by somebody else.
READERS: dict[str, Callable[[bytes], object]] = {
    "read": certificates.read,
    "texts": lambda der: (str(certificates.read(der).subject), certificates.read(der).sans.texts()),
    "validity": certificates.validity,
    "client": lambda der: _chain(chains.Client(), der),
    "beside a client": lambda der: _chain(chains.Client(), GOOD.der, der),
    "server": lambda der: _chain(chains.Server("a.example.com"), der),
    "beside a server": lambda der: _chain(chains.Server("a.example.com"), GOOD.der, der),
    "anchor": _anchored,
    "bundle": lambda der: bundles.TrustBundle.from_pem(pem.certificates_to_pem([ROOT.der, der])),
    "pin": pins.of_certificate,
    "pinned": lambda der: pins.require_pinned([der], [pins.of_certificate(ROOT.der)]),
    "pair": lambda der: pairs.read(pem.encode(pem.CERTIFICATE, der) + OTHER.to_pem()),
    "answer": lambda der: pairs.join(pem.encode(pem.CERTIFICATE, der), OTHER),
    "signer": lambda der: issuers.choose(pem.encode(pem.CERTIFICATE, der), OTHER),
    "authority": lambda der: authority.Authority(der, OTHER),
}


def read_everywhere(der: bytes) -> None:
    """Go through every reader; only refusals may come out."""
    for reader in READERS.values():
        with contextlib.suppress(errors.Refused):
            reader(der)


def parse(data: bytes) -> None:
    """Only refusals may come out; and what was read of the names can be written and read again."""
    for reader in (requests.parse, requests.parse_der):
        with contextlib.suppress(errors.Refused):
            found = reader(data)
            assert names.Sans.parse(found.sans.texts()) == found.sans
            assert names.from_name(names.to_name(found.subject)) == found.subject


class TestFence:
    @pytest.mark.parametrize(
        "error",
        [ValueError("s3cret"), TypeError("s3cret"), x509.UnsupportedGeneralNameType("s3cret"), panic()("s3cret")],
    )
    def test_every_failure_is_a_refusal(self, error: BaseException) -> None:
        with pytest.raises(errors.Refused) as caught, FENCE:
            raise error
        assert caught.value.reason == "Malformed"
        assert caught.value.message.startswith("it cannot be read")
        assert (type(error).__name__ in caught.value.message) == (not isinstance(error, ValueError))
        # What was read is not quoted.
        assert "s3cret" not in caught.value.message

    @pytest.mark.parametrize(
        "error",
        [errors.Refused("no"), errors.Misuse("ours"), MemoryError(), KeyboardInterrupt(), asyncio.CancelledError()],
    )
    def test_what_passes(self, error: BaseException) -> None:
        with pytest.raises(type(error)) as caught, FENCE:
            raise error
        assert caught.value is error

    def test_the_refusal_can_be_of_another_kind(self) -> None:
        with pytest.raises(chains.ChainRefused), fences.Fence("no", reason="Malformed", kind=chains.ChainRefused):
            raise IndexError

    def test_a_panic_of_the_library_is_a_refusal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def panics(_: bytes) -> None:
            raise panic()

        monkeypatch.setattr(x509, "load_der_x509_certificate", panics)
        monkeypatch.setattr(x509, "load_der_x509_csr", panics)
        monkeypatch.setattr(serialization, "load_der_public_key", panics)
        for reader in (certificates.read, requests.parse_der, keys.public_from_spki):
            with pytest.raises(errors.Refused, match="PanicException"):
                reader(b"x")


@pytest.mark.parametrize(("place", "name"), odd.CASES)
class TestGeneralNames:
    def test_a_certificate_is_read_or_refused(self, place: str, name: str) -> None:
        read_everywhere(odd.leaf(ROOT, place, name).der)

    def test_a_ca_is_read_or_left_out(self, place: str, name: str) -> None:
        made = odd.ca(place, name)
        read_everywhere(made.der)
        bundle, left = bundles.TrustBundle.readable([ROOT.der, made.der, GOOD.der])
        assert ROOT.der in bundle.ders
        assert GOOD.der not in bundle.ders
        assert (made.der in bundle.ders) == (2 not in [each.number for each in left])
        if name in odd.UNSUPPORTED and made.der not in bundle.ders:
            assert left[0].fingerprint == certificates.fingerprint(made.der)
            assert "UnsupportedGeneralNameType" in str(left[0])

    def test_a_request_is_read_or_refused(self, place: str, name: str) -> None:
        data = odd.request(place, name)
        parse(data)
        parse(pem.one(data, pem.CERTIFICATE_REQUEST))


@pytest.mark.parametrize("name", odd.UNSUPPORTED)
def test_what_the_library_has_no_word_for_is_refused(name: str) -> None:
    with pytest.raises(chains.ChainRefused, match="UnsupportedGeneralNameType") as caught:
        _chain(chains.Client(), odd.leaf(ROOT, "subjectAltName", name).der)
    assert caught.value.reason == "Malformed"
    with pytest.raises(errors.Refused, match="the request's extensions cannot be read") as refused:
        requests.parse(odd.request("subjectAltName", name))
    assert refused.value.reason == "MalformedRequest"


@pytest.mark.parametrize(
    ("reader", "whole"),
    [
        *((reader, GOOD.der) for reader in READERS.values()),
        (requests.parse_der, pem.one(REQUEST, pem.CERTIFICATE_REQUEST)),
        (requests.parse, REQUEST.rstrip()),
        (keys.private_from_pem, OTHER.to_pem().rstrip()),
    ],
    ids=[*READERS, "a request in DER", "a request", "a key"],
)
def test_every_truncation_is_refused(reader: Callable[[bytes], object], whole: bytes) -> None:
    for part in odd.cut(whole):
        with pytest.raises(errors.Refused):
            reader(part)


def flipped(whole: bytes, bits: list[int]) -> bytes:
    changed = bytearray(whole)
    for bit in bits:
        changed[bit // 8 % len(changed)] ^= 1 << bit % 8
    return bytes(changed)


BITS = st.lists(st.integers(0, 8 * 2048), min_size=1, max_size=4)


@settings(derandomize=True, deadline=None)
@given(BITS)
def test_what_has_flipped_bits_is_read_or_refused(bits: list[int]) -> None:
    read_everywhere(flipped(GOOD.der, bits))
    read_everywhere(flipped(ROOT.der, bits))
    parse(flipped(pem.one(REQUEST, pem.CERTIFICATE_REQUEST), bits))
    for name in odd.UNSUPPORTED:
        parse(flipped(pem.one(odd.request("subjectAltName", name), pem.CERTIFICATE_REQUEST), bits))


@settings(derandomize=True, deadline=None)
@given(st.binary(max_size=64), BITS)
def test_a_broken_key_is_read_or_refused_and_a_broken_signature_refused(junk: bytes, bits: list[int]) -> None:
    public = OTHER.public
    for spki in (junk, flipped(public.spki, bits)):
        with contextlib.suppress(errors.Refused):
            keys.public_from_spki(spki)
    with pytest.raises(errors.Refused):
        public.require_signature(junk, b"data")
