# SPDX-License-Identifier: Apache-2.0
"""TLS contexts from PEM in memory, and what the other side of a connection presented.

Private keys are handed to OpenSSL through an anonymous memory file, because `ssl` reads them from files only and a
key should not touch the disk for that. It does not decide whom to trust: the caller brings the bundle.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator, Sequence

from handfast import errors

# _ssl.ENCODING_DER
_DER = 2


def client_context(ca_pem: bytes | None, cert_pem: bytes | None = None, key_pem: bytes | None = None) -> ssl.SSLContext:
    """A context that verifies the server's chain and name, and offers a client certificate if there is one.

    Without `ca_pem` the system's trust store decides.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_pem is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _trust(context, ca_pem)
    if (cert_pem is None) != (key_pem is None):
        raise errors.Misuse("a client certificate and its key come together or not at all")
    if cert_pem is not None and key_pem is not None:
        load_pair(context, cert_pem, key_pem)
    return context


def unsafe_unverified_context() -> ssl.SSLContext:
    """A context that believes every certificate: for a question whose answer may be anybody's, and that says nothing secret."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def presented_chain(transport: asyncio.BaseTransport) -> tuple[bytes, ...]:
    """The certificates that the other side of a connection presented (DER, its own first); none without TLS, or without any."""
    ssl_object = transport.get_extra_info("ssl_object")
    if ssl_object is None:
        return ()
    # Public from Python 3.13 on (as DER bytes); before that only the inner object has it.
    public = getattr(ssl_object, "get_unverified_chain", None)
    if public is not None:
        return tuple(certificate for certificate in public() or () if certificate)
    # Without a certificate it is a list that holds one None.
    chain = ssl_object._sslobj.get_unverified_chain() or ()
    return tuple(certificate.public_bytes(_DER) for certificate in chain if certificate is not None)


def _trust(context: ssl.SSLContext, ca_pem: bytes) -> None:
    # The CA of a cluster may be an intermediate one, which is trusted itself, without its root: Go takes it so, too.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=ca_pem.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise errors.Refused("the CA bundle holds no certificate that can be read", reason="InvalidCABundle") from error


def useless(ders: Sequence[bytes]) -> list[bytes]:
    """Those of these CA certificates that the TLS library cannot trust: it cannot read all that other parsers can."""
    # All at once, since a context for each costs 0.9 ms.
    if not ders or _usable(b"".join(ders)):
        return []
    return [der for der in ders if not _usable(der)]


def _usable(ders: bytes) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=ders)
    except (ssl.SSLError, ValueError):
        return False
    return True


def load_pair(context: ssl.SSLContext, cert_pem: bytes, key_pem: bytes) -> None:
    """Give `context` a certificate chain and its private key."""
    with _readable(cert_pem) as cert_path, _readable(key_pem) as key_path:
        try:
            context.load_cert_chain(cert_path, key_path, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            # The text of the ssl error names no key material, yet is left out: only its reason word is of use.
            why = getattr(error, "reason", None) or "unreadable PEM"
            raise errors.Refused(
                f"the certificate and its private key cannot be used: {why}", reason="InvalidKeyPair"
            ) from None


def _no_password() -> str:
    # Without this, OpenSSL would ask on the terminal for the passphrase of an encrypted key.
    raise ValueError("encrypted private keys are not supported")


@contextlib.contextmanager
def _readable(data: bytes) -> Iterator[str]:
    """A path at which `data` can be read while the block runs."""
    try:
        descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        with tempfile.NamedTemporaryFile(prefix="handfast-", suffix=".pem") as file:  # mkstemp: mode 0600
            file.write(data)
            file.flush()
            yield file.name
        return
    with os.fdopen(descriptor, "wb") as memory:
        memory.write(data)
        memory.flush()
        yield f"/proc/self/fd/{descriptor}"
