# SPDX-License-Identifier: Apache-2.0
"""An entry of the issuance ledger: what is written down of one certificate, in the one encoding there is.

`ledger.segments` chains entries. It says nothing of whether a certificate should have been issued.

An entry is JSON on one line of `MAX_LINE` at most. Where it would be longer, texts that are too long are stored as their
SHA-256.

| who | holding | tries | stopped by | shown in tests/unit/rules/ledger/test_entries.py |
|---|---|---|---|---|
| a requester | a very long name | fill the ledger with few requests | the bound of an entry | test_an_entry_has_a_bound |
| a holder of a certificate | CN=system:bootstrap:… | have a token blamed | `authenticated_by` | test_how_somebody_authenticated |
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from handfast import errors
from handfast.api import objects, signer_names
from handfast.bootstrap import tokens
from handfast.pki import names
from handfast.rules import user_names

MAX_LINE: Final = 2 << 10
# What each text and all names may take of a line that would be longer. The longest name of a node fits.
_MAX_NAMES: Final = 512
_MAX_TEXT: Final = 96
_LONGER: Final = {"requester": 280, "request": 256}
_DIGEST: Final = "sha256:"
# The approver's reason, which is Kubernetes'.
AUTO_APPROVED: Final = "AutoApproved"
# A node's first certificate, its next one, the one after it had none in force, and that of its endpoint.
JOIN: Final = "NodeJoin"
RENEWAL: Final = "NodeRenewal"
RECOVERY: Final = "NodeRecovery"
SERVING: Final = "NodeServing"
BY_HAND: Final = "ByHand"
# How somebody had authenticated: with a bootstrap token.
BOOTSTRAP_TOKEN: Final = "bootstrap-token"  # noqa: S105 - a word, no password
# The machine-approver's reason, which is the real product's; and a machine's first certificate, or its endpoint's.
MACHINE_APPROVED: Final = "NodeCSRApprove"
MACHINE_JOIN: Final = "MachineJoin"
MACHINE_SERVING: Final = "MachineServing"
_INSTANTS: Final = ("issued_at", "not_after")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One certificate. `names` are those of `names_of`; key and certificate are SHA-256 in hex, instants whole seconds.

    One that is too long is stored as `bounded`.
    """

    issued_at: datetime.datetime
    signer: str
    requester: str
    authenticated_by: str
    token_id: str
    key_fingerprint: str
    serial: str
    names: tuple[str, ...]
    not_after: datetime.datetime
    rule: str
    request: str
    certificate: str
    # Who made the bootstrap token that was shown; empty where none was, or where nobody wrote it down.
    token_maker: str = ""


_FIELDS: Final = frozenset(field.name for field in fields(Entry))
# What is left out where it is empty: entries that are older than the field have none, and stay as they are.
_LEFT_OUT: Final = "token_maker"


def names_of(subject: names.Subject, sans: names.Sans) -> tuple[str, ...]:
    """The names in a certificate: `CN=`, then an `O=` for each group, then alternative names such as `DNS:`, `IP:`."""
    groups = (f"O={organization}" for organization in subject.organizations)
    return (f"CN={subject.common_name}", *groups, *sans.texts())


def authenticated_by(username: str, groups: Sequence[str], extra: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """How the author of a request had authenticated, and the id of the token or certificate; from the request itself.

    Whoever signs certificates chooses the names in them. So the credential that the server saw counts before the name.
    """
    credential = next(iter(extra.get(user_names.CREDENTIAL_ID, ())), "")
    if credential.startswith(user_names.CERTIFICATE_ID_PREFIX):
        recovers = username.startswith(user_names.NODE_RECOVERY_PREFIX) and user_names.NODE_RECOVERY in groups
        return "node-recovery" if recovers else "x509", credential.removeprefix(user_names.CERTIFICATE_ID_PREFIX)
    if credential.startswith(user_names.TOKEN_ID_PREFIX):
        return "service-account", credential.removeprefix(user_names.TOKEN_ID_PREFIX)
    if username.startswith(tokens.USER_PREFIX):
        return BOOTSTRAP_TOKEN, username.removeprefix(tokens.USER_PREFIX)
    return ("service-account" if user_names.service_account(username) is not None else "unknown"), ""


def rule_of(approval: str, method: str, signer: str, *, is_own_name: bool, machine: str = "") -> str:
    """Which rule said yes: `approval` is the reason of the approval, `method` that of `authenticated_by`.

    What the approvers approved is told apart by what it was; whatever has another reason was approved by hand. `machine` names
    the Machine that the machine-approver matched it with.
    """
    if approval == MACHINE_APPROVED:
        rule = MACHINE_SERVING if signer == signer_names.KUBELET_SERVING else MACHINE_JOIN
        return f"{rule}: {machine}" if machine else rule
    if approval != AUTO_APPROVED:
        return f"{BY_HAND}: {approval}" if approval else BY_HAND
    if signer == signer_names.KUBELET_SERVING:
        return SERVING
    if method == "node-recovery":
        return RECOVERY
    return RENEWAL if is_own_name else JOIN


def bounded(entry: Entry) -> Entry:
    """An entry with MAX_LINE at most: texts that are too long are their SHA-256, and so is the rest of too many names."""
    values = {field: getattr(entry, field) for field in _FIELDS}
    for field in _FIELDS.difference(_INSTANTS, {"names"}):
        if _size(values[field]) > _LONGER.get(field, _MAX_TEXT):
            values[field] = _digest(values[field])
    if _size(entry.names) > _MAX_NAMES:
        kept, size = 0, _size([_digest("")])
        while (size := size + _size(entry.names[kept]) + 1) <= _MAX_NAMES:
            kept += 1
        values["names"] = (*entry.names[:kept], _digest(entry.names[kept:]))
    return Entry(**values)


def _size(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":")))


def _digest(value: object) -> str:
    return _DIGEST + hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()


def encode(entry: Entry) -> str:
    """The one encoding of an entry: JSON on one line, keys in order, ASCII only, MAX_LINE at most."""
    line = _json(entry)
    return line if len(line) <= MAX_LINE else _json(bounded(entry))


def _json(entry: Entry) -> str:
    values: dict[str, Any] = {field: getattr(entry, field) for field in _FIELDS}
    for field in _INSTANTS:
        values[field] = objects.timestamp(values[field])
    if not values[_LEFT_OUT]:
        del values[_LEFT_OUT]
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


# Several rules look at the same new entry, one after the other; of what is refused nothing is kept.
@functools.lru_cache(maxsize=256)
def decode(line: str) -> Entry:
    """The inverse of `encode`, but for what was too long; Refused for anything that `encode` would not have written."""
    try:
        values = json.loads(line)
        if not isinstance(values, dict) or values.keys() | {_LEFT_OUT} != _FIELDS:
            raise _malformed(
                f"an entry has exactly the fields {', '.join(sorted(_FIELDS))}, of which {_LEFT_OUT} may be left out"
            )
        for field in _INSTANTS:
            values[field] = objects.parse_timestamp(values[field])
        entry = Entry(**{**values, "names": tuple(values["names"])})
        if encode(entry) != line or not all(isinstance(text, str) for text in _texts(entry)):
            raise _malformed("an entry is written in another way than the one there is")
    except (ValueError, TypeError, RecursionError, OverflowError):
        raise _malformed("an entry is not JSON of the form that entries have") from None
    return entry


def _texts(entry: Entry) -> Iterable[object]:
    return (*entry.names, *(getattr(entry, field) for field in _FIELDS if field not in {*_INSTANTS, "names"}))


def signers_of(stored: Iterable[str]) -> list[str]:
    """The signers that stored lines name, each once; of those that can be read."""
    signers = set()
    for line in stored:
        try:
            signers.add(decode_stored(line).signer)
        except errors.Refused:
            continue
    return sorted(signers)


def line_of(stored: str) -> str:
    """The JSON of a stored line, which is `LINK NUMBER JSON`."""
    return stored.partition(" ")[2].partition(" ")[2]


def decode_stored(stored: str) -> Entry:
    """The entry of a stored line; Refused as `decode` does."""
    return decode(line_of(stored))


def _malformed(message: str) -> errors.Refused:
    return errors.Refused(message, reason="MalformedEntry")
