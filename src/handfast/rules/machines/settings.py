# SPDX-License-Identifier: Apache-2.0
"""What an operator may say to the machine-approver: one YAML document in one ConfigMap.

It reads the text and follows nothing: `controllers.machines.settings` does, and keeps the last good one.

1. Nothing written is every default. `nodeClientCert.disabled` is the real product's one setting, spelt as there.
2. A key that is not known, a key twice or a value that is not allowed is refused, with the field, the value and what is allowed.
   Nothing of such a document counts: half of it could be less than the operator meant.
3. A bootstrap identity is nobody who is judged elsewhere: no node, no recovering node, not the anonymous user.
4. `readmission` lets a machine take a name that was a node's. It needs a proof of which machine asks: `sourceAddress`, or
   `credential: per-machine`.
5. Settings are weaker than others where a proof is off, requests are approved that were left to a person, more identities are judged,
   readmission is on or the window is longer: whoever changed them to that is to be seen.

| who | holding | tries | stopped by | shown in tests/unit/rules/machines/test_settings.py |
|---|---|---|---|---|
| a tired operator | a misspelt key | believe that a check is on | 2 | test_what_is_not_allowed_is_refused_by_field_and_value |
| … | `readmission: true` alone | let every holder of the shared credential take a silent node's name | 4 | test_readmission_needs_a_proof |
| … | `system:node:w1` as a bootstrap identity | have renewals judged by the inventory | 3 | test_what_is_not_allowed_is_refused_by_field_and_value |
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import durations
from handfast.api.codec import yaml_document
from handfast.rules import access, user_names
from handfast.rules.machines import bootstrapper, join_window

NAMESPACE: Final = "openshift-cluster-machine-approver"
NAME: Final = "machine-approver-config"
KEY: Final = "config.yaml"

SHARED: Final = "shared"
PER_MACHINE: Final = "per-machine"
CREDENTIALS: Final = (SHARED, PER_MACHINE)

# 3. who is judged elsewhere
_OTHERS: Final = (user_names.NODE_PREFIX, user_names.NODE_RECOVERY_PREFIX, access.ANONYMOUS)
_BOOLEAN: Final = "true or false"
_IDENTITIES: Final = "a list of {user: NAME, groups: [NAME, …]}, with one at least"
_MOST_SHOWN: Final = 80


class Unreadable(errors.Refused):
    """The settings are not to be used."""

    reason = "SettingsUnreadable"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What is decided by. `identities` are whose requests are judged."""

    disabled: bool = False
    join_within: datetime.timedelta = join_window.DEFAULT
    identities: tuple[bootstrapper.Identity, ...] = (bootstrapper.NODE_BOOTSTRAPPER,)
    source_address: bool = False
    credential: str = SHARED
    readmission: bool = False

    @property
    def per_machine(self) -> bool:
        """Whether each machine has to ask with a credential of its own."""
        return self.credential == PER_MACHINE


DEFAULT: Final = Settings()


def parse(text: str, join_within: datetime.timedelta = join_window.DEFAULT) -> Settings:
    """The settings that a text says; `join_within` where it does not say how long. Unreadable where one is wrong (2)."""
    document = _fields("", _document(text), _READERS)
    chosen = Settings(**{"join_within": join_within, **document})
    # 4. only together with a proof
    if chosen.readmission and not (chosen.source_address or chosen.per_machine):
        raise _refused("readmission", True, "true only together with sourceAddress: true or credential: per-machine")
    return chosen


def weaker(before: Settings, after: Settings) -> tuple[str, ...]:
    """What later settings ask for less than earlier ones, one sentence each (5.)."""
    more = [identity for identity in after.identities if identity not in before.identities]
    rows = (
        (before.disabled and not after.disabled, "client requests are approved again"),
        (after.join_within > before.join_within, f"joinWithin is longer, {durations.text(after.join_within)}"),
        (bool(more), f"{_shown([identity.user for identity in more])} counts as a bootstrap identity"),
        (before.source_address and not after.source_address, "sourceAddress is off"),
        (before.per_machine and not after.per_machine, f"credential is {after.credential}"),
        (after.readmission and not before.readmission, "readmission is on"),
    )
    return tuple(sentence for applies, sentence in rows if applies)


def _document(text: str) -> Any:
    try:
        document, repeated = yaml_document.load(text.encode())
    except errors.Refused as refused:
        raise Unreadable(f"{KEY} cannot be read: {refused.message}", hint="write one YAML document") from None
    # 2. no key twice
    if repeated:
        raise Unreadable(f"{KEY}: {', '.join(repeated)} is there twice", hint="write each key once")
    # 1. nothing written
    return {} if document is None else document


def _fields(prefix: str, document: Any, readers: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an object, read."""
    if not isinstance(document, dict):
        raise _refused(prefix or KEY, document, f"an object with {', '.join(readers)}")
    fields = {}
    for key, value in document.items():
        field = f"{prefix}.{key}" if prefix else key
        # 2. only keys that are known
        if key not in readers:
            raise _refused(field, value, f"no such key; there are {', '.join(readers)}")
        if value is not None:
            name, read = readers[key]
            fields[name] = read(field, value)
    return fields


def _boolean(field: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _refused(field, value, _BOOLEAN)
    return value


def _client(field: str, value: Any) -> bool:
    disabled: bool = _fields(field, value, {"disabled": ("disabled", _boolean)}).get("disabled", False)
    return disabled


def _join_within(field: str, value: Any) -> datetime.timedelta:
    try:
        return join_window.parse(value if isinstance(value, str) else "")
    except ValueError:
        raise _refused(field, value, join_window.ALLOWED) from None


def _identities(field: str, value: Any) -> tuple[bootstrapper.Identity, ...]:
    if not isinstance(value, list) or not value:
        raise _refused(field, value, _IDENTITIES)
    return tuple(_identity(f"{field}[{number}]", row) for number, row in enumerate(value))


def _identity(field: str, value: Any) -> bootstrapper.Identity:
    row = _fields(field, value, {"user": ("user", _user), "groups": ("groups", _groups)})
    if row.keys() != {"user", "groups"}:
        raise _refused(field, value, "both user and groups")
    return bootstrapper.Identity(**row)


def _user(field: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _refused(field, value, "the name of a user")
    # 3. nobody who is judged elsewhere
    if value.startswith(_OTHERS):
        raise _refused(field, value, "a user that is no node and not anonymous: their requests are judged elsewhere")
    return value


def _groups(field: str, value: Any) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(group, str) and group for group in value):
        raise _refused(field, value, f"a list of groups; {user_names.AUTHENTICATED} is added")
    return frozenset(value) - {user_names.AUTHENTICATED}


def _credential(field: str, value: Any) -> str:
    return _one_of(field, value, CREDENTIALS)


def _one_of(field: str, value: Any, allowed: Iterable[str]) -> str:
    if value not in tuple(allowed):
        raise _refused(field, value, " or ".join(allowed))
    return str(value)


def _refused(field: str, value: Any, allowed: str) -> Unreadable:
    return Unreadable(f"{field}: {_shown(value)} is not allowed", hint=f"allowed: {allowed}")


def _shown(value: Any) -> str:
    shown = json.dumps(value)
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}…"


# Key -> the field of Settings, and who reads it.
_READERS: Final[Mapping[str, Any]] = {
    "nodeClientCert": ("disabled", _client),
    "joinWithin": ("join_within", _join_within),
    "bootstrapIdentities": ("identities", _identities),
    "sourceAddress": ("source_address", _boolean),
    "credential": ("credential", _credential),
    "readmission": ("readmission", _boolean),
}
