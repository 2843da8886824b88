# SPDX-License-Identifier: Apache-2.0
"""The names in certificates and requests: the subject as Kubernetes reads it, and the subject alternative names.

It does not decide which names anyone may have: see `rules`.

What is read from a certificate or request must hold to this:

1. At most one common name. Go takes the last of several and OpenSSL the first: two readers, two users.
2. Every attribute is text without a NUL, at which other readers stop. Repeated organizations are fine: they are the
   groups.
3. Alternative names are DNS, IP, URI or e-mail. Other forms (otherName, directoryName, …) are refused: nothing here
   could check them.
4. A DNS name is a host name in lower or upper case, underscore allowed, `*` only as the whole first label; a URI has a
   scheme and only printable ASCII; an e-mail address has one `@` and only printable ASCII. A NUL or a blank inside a
   name has fooled readers before.
"""

from __future__ import annotations

import ipaddress
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from cryptography import x509
from cryptography.x509.oid import NameOID

from handfast import errors
from handfast.pki import fences

IP = ipaddress.IPv4Address | ipaddress.IPv6Address
_T = TypeVar("_T")

_CN = NameOID.COMMON_NAME.dotted_string
_O = NameOID.ORGANIZATION_NAME.dotted_string

# The order in which Go's pkix.Name writes a subject, so that ours reads the same in every listing.
_ORDER = tuple(
    oid.dotted_string
    for oid in (
        NameOID.COUNTRY_NAME,
        NameOID.ORGANIZATION_NAME,
        NameOID.ORGANIZATIONAL_UNIT_NAME,
        NameOID.LOCALITY_NAME,
        NameOID.STATE_OR_PROVINCE_NAME,
        NameOID.STREET_ADDRESS,
        NameOID.POSTAL_CODE,
        NameOID.COMMON_NAME,
        NameOID.SERIAL_NUMBER,
    )
)

# The library's reader of texts refuses common names past 64 octets; under another OID it takes them (see `_read`).
_STAND_IN = x509.ObjectIdentifier("2.5.4.3.1")

# As people write them (RFC 4514, and e-mail).
_SHORT = {
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
    "1.2.840.113549.1.9.1": "emailAddress",
}
_FENCE = fences.Fence("a distinguished name that cannot be read", reason="BadName")
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_DNS = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*\.?")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]+")
_EMAIL = re.compile(r"[!-?A-~]+@[!-?A-~]+")


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Common name and organizations, which Kubernetes reads as user and groups; `others` are (OID, text) pairs."""

    common_name: str = ""
    organizations: tuple[str, ...] = ()
    others: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return to_name(self).rfc4514_string()

    @property
    def plain(self) -> Subject:
        """Only what Kubernetes reads of it, which is all that a leaf signed here has."""
        return Subject(common_name=self.common_name, organizations=self.organizations) if self.others else self

    @property
    def other_types(self) -> tuple[str, ...]:
        """What kinds of attribute `others` has, each once: `OU`, or the dotted OID of one without a short word."""
        return tuple(dict.fromkeys(_SHORT.get(oid, oid) for oid, _ in self.others))

    @classmethod
    def parse(cls, text: str) -> Subject:
        """The inverse of `str`: RFC 4514, such as `CN=system:node:a,O=system:nodes`."""
        with fences.Fence(f"{text!r} is not a distinguished name such as CN=jane,O=developers", reason="BadName"):
            name = x509.Name.from_rfc4514_string(text, {"CN": _STAND_IN})
        return _subject((_CN if part.oid == _STAND_IN else part.oid.dotted_string, part.value) for part in name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sans:
    """Subject alternative names by form."""

    dns: tuple[str, ...] = ()
    ip: tuple[IP, ...] = ()
    uri: tuple[str, ...] = ()
    email: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.dns or self.ip or self.uri or self.email)

    def texts(self) -> list[str]:
        """`DNS:a.example`, `IP:192.0.2.1`, `URI:spiffe://…`, `email:a@b`: one text per name."""
        return [
            *(f"DNS:{name}" for name in self.dns),
            *(f"email:{name}" for name in self.email),
            *(f"IP:{address}" for address in self.ip),
            *(f"URI:{name}" for name in self.uri),
        ]

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Sans:
        """The inverse of `texts`."""
        by_form: dict[str, list[str]] = {"DNS": [], "IP": [], "URI": [], "email": []}
        for text in texts:
            form, colon, value = text.partition(":")
            if not colon or form not in by_form:
                raise _refused(f"{text!r} is not an alternative name; write DNS:, IP:, URI: or email: before the value")
            by_form[form].append(value)
        return make_sans(dns=by_form["DNS"], ip=by_form["IP"], uri=by_form["URI"], email=by_form["email"])


def make_sans(
    *, dns: Iterable[str] = (), ip: Iterable[str | IP] = (), uri: Iterable[str] = (), email: Iterable[str] = ()
) -> Sans:
    """Alternative names from texts, each checked (4)."""
    return Sans(
        dns=tuple(dns_name(text) for text in dns),
        ip=tuple(ip_address(text) for text in ip),
        uri=tuple(_matching(_URI, "URI", text) for text in uri),
        email=tuple(_matching(_EMAIL, "e-mail address", text) for text in email),
    )


def dns_name(text: str) -> str:
    """The text itself if it is a DNS name (4)."""
    if len(text) > 254:
        raise _refused(f"a DNS name has at most 253 characters, this one {len(text)}")
    return _matching(_DNS, "DNS name", text)


def ip_address(text: str | IP) -> IP:
    """An IP address; a zone (`%eth0`) is refused, since a certificate cannot carry one."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise _refused(f"{text!r} is not an IP address") from None
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        raise _refused(f"{text!r} has a zone; certificates name addresses without one")
    return address


def _matching(pattern: re.Pattern[str], what: str, text: str) -> str:
    if pattern.fullmatch(text) is None:
        raise _refused(f"{text!r} is not a {what}")
    return text


def from_name(name: x509.Name) -> Subject:
    """The subject of the library's name (1, 2)."""
    return _subject((attribute.oid.dotted_string, attribute.value) for attribute in name)


def _subject(attributes: Iterable[tuple[str, str | bytes]]) -> Subject:
    common_names: list[str] = []
    organizations: list[str] = []
    others: list[tuple[str, str]] = []
    for oid, value in attributes:
        # 2. text, without a NUL
        if not isinstance(value, str):
            raise _refused(f"subject attribute {oid} is not text")
        if "\0" in value:
            raise _refused(f"subject attribute {oid} contains a NUL")
        if oid == _CN:
            common_names.append(value)
        elif oid == _O:
            organizations.append(value)
        else:
            others.append((oid, value))
    # 1. at most one common name
    if len(common_names) > 1:
        raise _refused(f"a subject has at most one common name, this one {len(common_names)}")
    return Subject(common_name="".join(common_names), organizations=tuple(organizations), others=tuple(others))


def subject_of(signed: x509.Certificate | x509.CertificateSigningRequest) -> Subject:
    """The subject of a certificate or request of the library."""
    return from_name(name_of(signed))


def name_of(signed: x509.Certificate | x509.CertificateSigningRequest) -> x509.Name:
    """The library's own name, to be copied byte for byte as an issuer."""
    return _read(lambda: signed.subject)


def issuer_of(certificate: x509.Certificate) -> x509.Name:
    """The library's own name of the issuer."""
    return _read(lambda: certificate.issuer)


def both_of(certificate: x509.Certificate) -> tuple[Subject, x509.Name]:
    """The subject, and the library's own name of the issuer: both with one fence."""
    subject, issuer = _read(lambda: (certificate.subject, certificate.issuer))
    return from_name(subject), issuer


def _read(name: Callable[[], _T]) -> _T:
    with _FENCE, warnings.catch_warnings():
        # The library warns past 64 octets of common name; node names are longer, and Kubernetes takes them.
        warnings.simplefilter("ignore")
        return name()


def to_name(subject: Subject) -> x509.Name:
    """The library's name: one set per attribute type, in Go's order, so that one subject has one encoding."""
    values: dict[str, list[str]] = {oid: [] for oid in _ORDER}
    values[_O] = list(dict.fromkeys(subject.organizations))
    values[_CN] = [subject.common_name] if subject.common_name else []
    for oid, value in subject.others:
        if oid in {_CN, _O}:
            raise errors.Misuse("the common name and organizations have fields of their own")
        values.setdefault(oid, []).append(value)
    return x509.Name(
        [
            x509.RelativeDistinguishedName([_attribute(oid, text) for text in dict.fromkeys(texts)])
            for oid, texts in values.items()
            if texts
        ]
    )


def _attribute(oid: str, text: str) -> x509.NameAttribute[str]:
    with warnings.catch_warnings():
        # See `_read`: the limit of 64 octets is not kept by Kubernetes.
        warnings.simplefilter("ignore")
        return x509.NameAttribute(x509.ObjectIdentifier(oid), text, _validate=False)


def from_general_names(general: Iterable[x509.GeneralName]) -> Sans:
    """The alternative names of the library's extension (3, 4)."""
    dns: list[str] = []
    ip: list[IP] = []
    uri: list[str] = []
    email: list[str] = []
    for name in general:
        if isinstance(name, x509.DNSName):
            dns.append(name.value)
        elif isinstance(name, x509.UniformResourceIdentifier):
            uri.append(name.value)
        elif isinstance(name, x509.RFC822Name):
            email.append(name.value)
        elif isinstance(name, x509.IPAddress) and isinstance(name.value, IP):
            ip.append(name.value)
        else:
            # 3. no other form of name
            raise _refused(f"alternative names of the form {type(name).__name__} are not accepted")
    # 4. each of them well formed
    return make_sans(dns=dns, ip=ip, uri=uri, email=email)


def to_general_names(sans: Sans) -> Sequence[x509.GeneralName]:
    """The library's names, checked again (4) and in Go's order: DNS, e-mail, IP, URI."""
    checked = make_sans(dns=sans.dns, ip=sans.ip, uri=sans.uri, email=sans.email)
    return [
        *(x509.DNSName(name) for name in checked.dns),
        *(x509.RFC822Name(name) for name in checked.email),
        *(x509.IPAddress(address) for address in checked.ip),
        *(x509.UniformResourceIdentifier(name) for name in checked.uri),
    ]


def _refused(message: str) -> errors.Refused:
    return errors.Refused(message, reason="BadName")
