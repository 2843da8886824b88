# SPDX-License-Identifier: Apache-2.0
"""What the variables of a proxy's container say of its identity: name, trust anchors, token file and store directory.

It opens no file: whether the token can be read and the directory can be written is `proxy.store_directory`'s to see. Variables about
anything but the identity are not read; those of the services that a proxy calls are in `proxy_clients`.

| what | variables, the seed's first |
|---|---|
| name | `LINKERD2_PROXY_LOCAL_IDENTITY_NAME`, `LINKERD2_PROXY_LOCAL_IDENTITY`; today `LINKERD2_PROXY_IDENTITY_LOCAL_NAME`, or `LINKERD2_PROXY_IDENTITY_SERVER_NAME` with `LINKERD2_PROXY_IDENTITY_SERVER_ID` |
| anchors | `LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS_BLOB`, `LINKERD_PROXY_TRUST_ANCHORS_BLOB`; today `LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS` |
| token file | `LINKERD2_PROXY_IDENTITY_TOKEN_FILE` |
| store directory | `LINKERD2_PROXY_IDENTITY_STORE_DIR`; today `LINKERD2_PROXY_IDENTITY_DIR` |
| what the start-up made (`read_files`) | `LINKERD2_PROXY_IDENTITY_KEY_FILE`, `LINKERD2_PROXY_IDENTITY_CSR_FILE`, `LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS_FILE` |

1. Without a variable for the name there is no identity, and nothing else is read: a plain proxy. A variable that is set and empty is a
   mistake, and no plain proxy [ProxyVariableEmpty].
2. The variables for one thing say the same [ProxyVariablesDiffer]. Anchors are compared as a set of certificates.
3. With a name, all four things are there; after the start-up its files in place of anchors and directory [ProxyVariableMissing].
4. The name is a DNS name of at least two labels that a certificate can have [BadProxyIdentity].
5. The anchors are PEM, or base64 of PEM [TrustAnchorsNotBase64, TrustAnchorsNotPEM]. What is in them is judged as for the identity service,
   with its reasons and bounds (`issuer.read_anchors`).
6. The paths can be printed: they are written out for shells [BadProxyPath].

No text of a refusal quotes a value, but for the name.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_proxy_environment.py |
|---|---|---|---|---|
| who may edit a template | one variable of several | have the proxy and its script believe different anchors, or be two names | 2 | test_two_values_for_one_thing_are_refused |
| … | the name, emptied | have a workload served without its identity | 1 | test_an_empty_variable_is_no_plain_proxy |
| … | anchors without end | keep the start-up busy | 5 | test_two_thousand_anchors_are_refused |
| a CA of another purpose | a certificate that is no CA | be an anchor | 5 | test_anchors_that_cannot_be_used_are_refused_with_variable_and_cause |
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from handfast import errors
from handfast.pki import bundles
from handfast.rules.mesh import issuer, names, sidecar

_IDENTITY: Final = f"{sidecar.PREFIX}IDENTITY_"
NAME: Final = f"{sidecar.PREFIX}LOCAL_IDENTITY_NAME"
ANCHORS: Final = f"{_IDENTITY}TRUST_ANCHORS_BLOB"
TOKEN_FILE: Final = f"{_IDENTITY}TOKEN_FILE"
STORE: Final = f"{_IDENTITY}STORE_DIR"
# What the start-up tells the proxy.
KEY_FILE: Final = f"{_IDENTITY}KEY_FILE"
CSR_FILE: Final = f"{_IDENTITY}CSR_FILE"
ANCHORS_FILE: Final = f"{_IDENTITY}TRUST_ANCHORS_FILE"

# Every spelling of a thing, the seed's first; errors about a thing that is missing name that one.
_NAMES: Final = (
    NAME,
    f"{sidecar.PREFIX}LOCAL_IDENTITY",
    f"{_IDENTITY}LOCAL_NAME",
    f"{_IDENTITY}SERVER_NAME",
    f"{_IDENTITY}SERVER_ID",
)
ANCHORS_SPELLINGS: Final = (ANCHORS, "LINKERD_PROXY_TRUST_ANCHORS_BLOB", f"{_IDENTITY}TRUST_ANCHORS")
_TOKENS: Final = (TOKEN_FILE,)
_STORES: Final = (STORE, f"{_IDENTITY}DIR")
_TOKEN_PURPOSE: Final = "hold the path of the token that proves the account"  # noqa: S105 - words
_BEGIN: Final = b"-----BEGIN"


class Invalid(errors.Refused):
    """Variables with which no proxy starts; `reason` is one of the words above, or of `issuer`."""

    reason = "ProxyVariableMissing"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyEnvironment:
    """An identity that is configured whole. The paths are as they were written; `store_variable` is where that of the store was."""

    name: str
    anchors: bundles.TrustBundle = field(repr=False)
    token_file: str
    store: str
    store_variable: str = STORE


class ProxyFiles(msgspec.Struct, frozen=True, kw_only=True):
    """An identity after the start-up: the name, and where key, request, anchors and token lie."""

    name: str
    key_file: str
    csr_file: str
    anchors_file: str
    token_file: str


def read(variables: Mapping[str, str]) -> ProxyEnvironment | None:
    """The identity that the variables give, or None for a plain proxy."""
    # 1. no name, no identity
    if not any(variable in variables for variable in _NAMES):
        return None
    name, anchors = _read_name(variables), read_anchors(variables)
    _, token_file = _path(variables, _TOKENS, _TOKEN_PURPOSE)
    variable, store = _path(variables, _STORES, "hold the path of a directory in memory, for the key")
    return ProxyEnvironment(name=name, anchors=anchors, token_file=token_file, store=store, store_variable=variable)


def read_files(variables: Mapping[str, str]) -> ProxyFiles | None:
    """The identity of a proxy whose start-up has made its files, or None for a plain proxy. The anchors are those of the file."""
    # 1. no name, no identity
    if not any(variable in variables for variable in _NAMES):
        return None
    purpose = "hold the path of a file that `handfast mesh proxy init` makes"
    key, csr, anchors = (_path(variables, (variable,), purpose)[1] for variable in (KEY_FILE, CSR_FILE, ANCHORS_FILE))
    _, token_file = _path(variables, _TOKENS, _TOKEN_PURPOSE)
    name = _read_name(variables)
    return ProxyFiles(name=name, key_file=key, csr_file=csr, anchors_file=anchors, token_file=token_file)


def require_name(variable: str, name: str) -> None:
    """Return if a workload or a service can have this name, else refuse (4)."""
    wrong = names.not_dns(name) or (None if "." in name else "it has to have at least two labels")
    if wrong is not None:
        raise Invalid(
            f"{variable}: {name[: names.MAX_LENGTH]!r} cannot be the name of a workload: {wrong}",
            reason="BadProxyIdentity",
            hint="as in web.shop.sa.linkerd-identity.linkerd.cluster.local",
        )


def _read_name(variables: Mapping[str, str]) -> str:
    variable, name = agreed(stated(variables, _NAMES, "hold the name of the workload"))
    # 4. a DNS name of two labels at least
    require_name(variable, name)
    return name


def _path(variables: Mapping[str, str], spellings: tuple[str, ...], purpose: str) -> tuple[str, str]:
    """The variable, and the path in it."""
    variable, path = agreed(stated(variables, spellings, purpose))
    # 6. for a shell
    if not path.isprintable():
        raise Invalid(f"{variable}: the path has characters that cannot be printed", reason="BadProxyPath")
    return variable, path


def read_anchors(variables: Mapping[str, str]) -> bundles.TrustBundle:
    """The anchors alone (2, 3, 5)."""
    values = stated(variables, ANCHORS_SPELLINGS, "hold the trust anchors, as base64 of PEM certificates")
    read_by = {variable: _bundle(variable, value) for variable, value in values.items()}
    first, *others = read_by
    for other in others:
        # 2. the same certificates
        if read_by[other].ders != read_by[first].ders:
            raise _differ(first, other)
    return read_by[first]


def _bundle(variable: str, value: str) -> bundles.TrustBundle:
    data = _pem(variable, value)
    try:
        return issuer.read_anchors(data)
    except issuer.Unfit as unfit:
        raise Invalid(f"{variable}: {unfit.message}", reason=unfit.reason, hint=unfit.hint) from None


def _pem(variable: str, value: str) -> bytes:
    data = value.encode(errors="replace")
    # 5. PEM as it is, or in base64, with or without line ends
    if _BEGIN not in data:
        try:
            data = base64.b64decode(b"".join(data.split()), validate=True)
        except (binascii.Error, ValueError):
            raise Invalid(
                f"{variable}: neither base64 nor PEM",
                reason="TrustAnchorsNotBase64",
                hint="give base64 of PEM certificates, as in: base64 -w0 root.crt",
            ) from None
        if _BEGIN not in data:
            raise Invalid(
                f"{variable}: base64, but not of PEM certificates",
                reason="TrustAnchorsNotPEM",
                hint="convert DER first, as in: openssl x509 -inform der -in root.der",
            )
    return data


def stated(variables: Mapping[str, str], spellings: tuple[str, ...], purpose: str) -> dict[str, str]:
    """What each spelling says that is set."""
    values = {variable: variables[variable] for variable in spellings if variable in variables}
    # 3. there
    if not values:
        raise Invalid(f"{spellings[0]} is not set, although a name is", hint=f"it has to {purpose}")
    for variable, value in values.items():
        # 1. set, and not empty
        if not value.strip():
            raise Invalid(f"{variable} is set, but empty", reason="ProxyVariableEmpty", hint=f"it has to {purpose}")
    return values


def agreed(values: Mapping[str, str]) -> tuple[str, str]:
    """The one value of several spellings, and the first of them."""
    first, *others = values
    for other in others:
        # 2. the same words
        if values[other] != values[first]:
            raise _differ(first, other)
    return first, values[first]


def _differ(first: str, other: str) -> Invalid:
    return Invalid(
        f"{first} and {other} are two spellings of one thing, and say different things",
        reason="ProxyVariablesDiffer",
        hint="set one of them, or both to the same",
    )
