# SPDX-License-Identifier: Apache-2.0
"""The table of chains, good and bad, each with the reason it is refused for; `test_chains.py` asks for the verdicts."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from handfast.pki import chains
from tests.unit.pki import making
from tests.unit.pki.making import ANY, CLIENT, DAY, NOW, SERVER, Made, ca, certificate, leaf

HOST = x509.DNSName("api.example")
ADDRESS = x509.IPAddress(ipaddress.ip_address("192.0.2.1"))
UNKNOWN = (x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00"), True)


@dataclass(frozen=True)
class Case:
    """What a peer sends, whom we trust, and for what; `reason` is empty when it is accepted."""

    chain: Sequence[Made | bytes]
    roots: Sequence[Made]
    reason: str = ""
    purpose: chains.Client | chains.Server = chains.Client()  # noqa: RUF009 -- frozen and without fields
    # What `openssl verify` says, where it differs on purpose.
    openssl: bool | None = None


CASES: dict[str, Callable[[], Case]] = {}


def case(title: str) -> Callable[[Callable[[], Case]], Callable[[], Case]]:
    def add(make: Callable[[], Case]) -> Callable[[], Case]:
        CASES[title] = functools.cache(make)
        return make

    return add


def constrained(*permitted: x509.GeneralName, excluded: Sequence[x509.GeneralName] | None = None) -> making.Extension:
    return x509.NameConstraints(permitted or None, excluded), True


@case("good with intermediate")
def _() -> Case:
    root = ca()
    middle = ca("middle", root, path_length=0)
    return Case([leaf(middle, CLIENT, sans=[HOST]), middle], [root])


@case("no SAN, as client")
def _() -> Case:
    root = ca()
    return Case([leaf(root, CLIENT)], [root])


@case("root sent along")
def _() -> Case:
    root = ca()
    return Case([leaf(root, CLIENT), root], [root])


@case("any extended key usage, as client")
def _() -> Case:
    root = ca()
    # Go counts any, OpenSSL does not.
    return Case([leaf(root, ANY)], [root], openssl=False)


@case("serverAuth only, as client")
def _() -> Case:
    root = ca()
    return Case([leaf(root, SERVER, sans=[HOST])], [root], "WrongPurpose")


@case("clientAuth only, as server")
def _() -> Case:
    root = ca()
    return Case([leaf(root, CLIENT, sans=[HOST])], [root], "WrongPurpose", chains.Server("api.example"))


@case("no extended key usage")
def _() -> Case:
    root = ca()
    return Case([leaf(root)], [root], "WrongPurpose", openssl=True)


@case("intermediate limited to serverAuth, as client")
def _() -> Case:
    root = ca()
    middle = ca("middle", root, (x509.ExtendedKeyUsage([SERVER]), False))
    return Case([leaf(middle, CLIENT), middle], [root], "WrongPurpose")


@case("intermediate limited to clientAuth, as client")
def _() -> Case:
    root = ca()
    middle = ca("middle", root, (x509.ExtendedKeyUsage([CLIENT]), False))
    return Case([leaf(middle, CLIENT), middle], [root])


@case("expired")
def _() -> Case:
    root = ca()
    return Case([leaf(root, CLIENT, not_after=NOW - DAY / 2)], [root], "Expired")


@case("not yet valid")
def _() -> Case:
    root = ca()
    return Case([leaf(root, CLIENT, not_before=NOW + DAY / 2)], [root], "NotYetValid")


@case("expired intermediate")
def _() -> Case:
    root = ca()
    middle = ca("middle", root, not_after=NOW - DAY / 2)
    return Case([leaf(middle, CLIENT), middle], [root], "Expired")


@case("expired root")
def _() -> Case:
    root = ca(not_after=NOW - DAY / 2)
    return Case([leaf(root, CLIENT)], [root], "Expired")


@case("wrong CA")
def _() -> Case:
    return Case([leaf(ca("root"), CLIENT)], [ca("root")], "UnknownAuthority")


@case("unknown CA")
def _() -> Case:
    return Case([leaf(ca("other"), CLIENT)], [ca("root")], "UnknownAuthority")


@case("intermediate missing")
def _() -> Case:
    root = ca()
    return Case([leaf(ca("middle", root), CLIENT)], [root], "UnknownAuthority")


@case("two intermediates that sign each other")
def _() -> Case:
    first_key, second_key = making.new_key(), making.new_key()
    second = Made(ca("second", key=second_key).certificate, second_key)
    first = ca("first", second, key=first_key)
    again = ca("second", first, key=second_key)
    return Case([leaf(first, CLIENT), first, again], [ca()], "UnknownAuthority")


@case("empty bundle")
def _() -> Case:
    return Case([leaf(ca(), CLIENT)], [], "UnknownAuthority")


@case("path length exceeded")
def _() -> Case:
    root = ca()
    upper = ca("upper", root, path_length=0)
    lower = ca("lower", upper)
    return Case([leaf(lower, CLIENT), lower, upper], [root], "PathLength")


@case("path length of the root exceeded")
def _() -> Case:
    root = ca(path_length=0)
    middle = ca("middle", root)
    return Case([leaf(middle, CLIENT), middle], [root], "PathLength")


@case("path longer than permitted")
def _() -> Case:
    root = ca()
    middles = [ca("m0", root)]
    for number in range(1, 9):
        middles.append(ca(f"m{number}", middles[-1]))
    return Case([leaf(middles[-1], CLIENT), *reversed(middles)], [root], "PathLength", openssl=True)


def _longest(*usages: x509.ObjectIdentifier, reason: str = "") -> Case:
    root = ca()
    middles = [ca("m0", root)]
    for number in range(1, chains.MAX_DEPTH):
        middles.append(ca(f"m{number}", middles[-1]))
    return Case([leaf(middles[-1], *usages), *reversed(middles)], [root], reason)


@case("as many intermediates as may be")
def _() -> Case:
    return _longest(CLIENT)


@case("as many intermediates as may be, and another fault")
def _() -> Case:
    return _longest(SERVER, reason="WrongPurpose")


@case("too many certificates")
def _() -> Case:
    root = ca()
    return Case([leaf(root, CLIENT), *[ca("x")] * 10], [root], "Malformed", openssl=True)


@case("name constraints kept")
def _() -> Case:
    root = ca()
    middle = ca("middle", root, constrained(x509.DNSName("example")))
    return Case([leaf(middle, CLIENT, sans=[HOST]), middle], [root])


@case("name constraints violated")
def _() -> Case:
    root = ca()
    middle = ca("middle", root, constrained(x509.DNSName("team.example")))
    return Case([leaf(middle, CLIENT, sans=[HOST]), middle], [root], "NameConstraints")


@case("name constraints of the root violated, as server")
def _() -> Case:
    root = ca("root", None, constrained(excluded=[x509.DNSName("example")]))
    return Case([leaf(root, SERVER, sans=[HOST])], [root], "NameConstraints", chains.Server("api.example"))


@case("name constraints that are not understood")
def _() -> Case:
    root = ca()
    middle = ca("middle", root, constrained(x509.DirectoryName(making.name("jane"))))
    return Case([leaf(middle, CLIENT), middle], [root], "NameConstraints", openssl=True)


@case("issuer is CA:FALSE")
def _() -> Case:
    root = ca()
    middle = leaf(root, CLIENT, subject="middle")
    return Case([leaf(middle, CLIENT), middle], [root], "NotAuthority")


@case("issuer without basic constraints")
def _() -> Case:
    root = ca()
    middle = certificate("middle", root)
    return Case([leaf(middle, CLIENT), middle], [root], "NotAuthority")


@case("issuer without keyCertSign")
def _() -> Case:
    root = ca()
    signs = (x509.BasicConstraints(ca=True, path_length=None), True), (making.key_usage(crl_sign=True), True)
    middle = certificate("middle", root, signs)
    return Case([leaf(middle, CLIENT), middle], [root], "NotAuthority")


@case("issuers without key usage")
def _() -> Case:
    only = [(x509.BasicConstraints(ca=True, path_length=None), False)]
    root = certificate("root", None, only)
    middle = certificate("middle", root, only)
    return Case([leaf(middle, CLIENT), middle], [root])


@case("intermediates in another order")
def _() -> Case:
    root = ca()
    upper = ca("upper", root)
    lower = ca("lower", upper)
    return Case([leaf(lower, CLIENT), upper, lower], [root])


@case("chain in wrong order: CA first")
def _() -> Case:
    root = ca()
    middle = ca("middle", root)
    return Case([middle, leaf(middle, CLIENT)], [root], "WrongOrder")


@case("a CA meant for clients too, as peer")
def _() -> Case:
    root = ca()
    middle = ca("jane", root, (x509.ExtendedKeyUsage([CLIENT]), False))
    return Case([middle], [root], "WrongOrder")


@case("the anchor itself, as peer")
def _() -> Case:
    root = ca("jane", None, (x509.ExtendedKeyUsage([CLIENT]), False))
    return Case([root], [root], "WrongOrder")


@case("extra unrelated certificate")
def _() -> Case:
    root = ca()
    middle = ca("middle", root)
    return Case([leaf(middle, CLIENT), ca("unrelated"), middle], [root])


@case("intermediate of the same name with another key")
def _() -> Case:
    root = ca()
    middle = ca("middle", root)
    # OpenSSL takes the first issuer of that name and does not come back.
    return Case([leaf(middle, CLIENT), ca("middle", root), middle], [root], openssl=False)


@case("cross-signed, the first way has ended")
def _() -> Case:
    old, new = ca("old", not_after=NOW - DAY / 2), ca("new")
    key = making.new_key()
    by_old, by_new = ca("middle", old, key=key), ca("middle", new, key=key)
    # OpenSSL takes the first issuer of that name and does not come back.
    return Case([leaf(by_new, CLIENT), by_old, by_new], [old, new], openssl=False)


@case("empty chain")
def _() -> Case:
    return Case([], [ca()], "Malformed")


@case("not a certificate")
def _() -> Case:
    return Case([b"garbage"], [ca()], "Malformed")


@case("second certificate is broken")
def _() -> Case:
    root = ca()
    return Case([leaf(root, CLIENT), b"garbage"], [root], "Malformed")


@case("two common names")
def _() -> Case:
    root = ca()
    both = x509.Name([*making.name("jane"), *making.name("root")])
    return Case([leaf(root, CLIENT, subject=both)], [root], "Malformed", openssl=True)


@case("malformed alternative name")
def _() -> Case:
    root = ca()
    return Case([leaf(root, CLIENT, sans=[x509.DNSName("a b")])], [root], "Malformed", openssl=True)


@case("weak RSA-1024 leaf")
def _() -> Case:
    root = ca()
    return Case([leaf(root, CLIENT, key=rsa.generate_private_key(65537, 1024))], [root], "WeakKey")


@case("weak P-224 leaf")
def _() -> Case:
    root = ca()
    return Case([leaf(root, CLIENT, key=ec.generate_private_key(ec.SECP224R1()))], [root], "WeakKey", openssl=True)


@case("weak RSA-1024 intermediate")
def _() -> Case:
    root = ca()
    middle = ca("middle", root, key=rsa.generate_private_key(65537, 1024))
    return Case([leaf(middle, CLIENT), middle], [root], "WeakKey")


@case("Ed25519 leaf")
def _() -> Case:
    root = ca()
    return Case([leaf(root, CLIENT, key=ed25519.Ed25519PrivateKey.generate())], [root])


@case("Ed25519 intermediate")
def _() -> Case:
    root = ca()
    middle = ca("middle", root, key=ed25519.Ed25519PrivateKey.generate())
    return Case([leaf(middle, CLIENT), middle], [root], "WeakKey", openssl=True)


@case("signed with SHA-224")
def _() -> Case:
    root = ca()
    return Case([leaf(root, CLIENT, digest=hashes.SHA224())], [root], "WeakSignature", openssl=True)


@case("anchor without a name")
def _() -> Case:
    root = ca(x509.Name([]))
    return Case([leaf(root, CLIENT)], [root], "Untrusted", openssl=True)


@case("unknown critical extension")
def _() -> Case:
    root = ca()
    return Case([leaf(root, CLIENT, more=[UNKNOWN])], [root], "UnknownExtension")


@case("unknown critical extension in an intermediate")
def _() -> Case:
    root = ca()
    middle = ca("middle", root, UNKNOWN)
    return Case([leaf(middle, CLIENT), middle], [root], "UnknownExtension")


@case("unknown extension, not critical")
def _() -> Case:
    root = ca()
    return Case([leaf(root, CLIENT, more=[(UNKNOWN[0], False)])], [root])


@case("good server by name")
def _() -> Case:
    root = ca()
    return Case([leaf(root, SERVER, sans=[HOST])], [root], purpose=chains.Server("API.example."))


@case("good server by wildcard")
def _() -> Case:
    root = ca()
    return Case(
        [leaf(root, SERVER, sans=[x509.DNSName("*.team.example")])], [root], purpose=chains.Server("a.team.example")
    )


@case("good server by address")
def _() -> Case:
    root = ca()
    return Case([leaf(root, SERVER, sans=[HOST, ADDRESS])], [root], purpose=chains.Server("192.0.2.1"))


@case("server of another name")
def _() -> Case:
    root = ca()
    return Case(
        [leaf(root, SERVER, sans=[HOST, x509.DNSName("*.api.example")])],
        [root],
        "WrongName",
        chains.Server("other.example"),
    )


@case("server of another address")
def _() -> Case:
    root = ca()
    return Case([leaf(root, SERVER, sans=[ADDRESS])], [root], "WrongName", chains.Server("192.0.2.2"))


@case("server with its name in the subject only")
def _() -> Case:
    root = ca()
    # OpenSSL still falls back to the common name; browsers and Go have given that up.
    return Case([leaf(root, SERVER, subject="api.example")], [root], "WrongName", chains.Server("api.example"), True)
