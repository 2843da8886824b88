# SPDX-License-Identifier: Apache-2.0
"""The secrets by which machines ask for their configuration, of one machine or of a pool, and the Secrets in which they are kept.

Documents and facts only: `client.ignition_secrets` writes them, and `requester` decides whether a secret counts.

1. A Secret holds the SHA-256 of the text and never the text: whoever reads it cannot ask with it. The text is 32 random octets,
   so that its digest needs no salt.
2. The secret of a machine is for the one Machine with that UID, and for one pool. A Machine that was made anew under its name
   is another one.
3. A pool has one secret, and until an instant that is written down the one before is good, too: machines in flight may have that one.
4. What cannot be read is no secret: a Secret of another label, a digest that is none, an instant that is none.

| who | holding | tries | stopped by | shown in tests/unit/rules/machine_config/test_ignition_secrets.py |
|---|---|---|---|---|
| a reader of the cluster's Secrets | the Secret | ask with what is in it | 1 | test_a_secret_holds_the_digest_and_never_the_text |
| who may write Secrets elsewhere | a Secret of another label | have it count | 4 | test_what_is_not_labelled_is_no_secret_of_ours |
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import jsonpath, objects
from handfast.rules.machines import bootstrapper, inventory, machine_tokens

LABEL: Final = "machines.handfast.dev/ignition-secret"
MACHINE: Final = machine_tokens.MACHINE
MACHINE_UID: Final = machine_tokens.MACHINE_UID
POOL: Final = "machines.handfast.dev/pool"
# The values of LABEL.
OF_MACHINE: Final = "machine"
OF_POOL: Final = "pool"
_CURRENT: Final = "sha256"
_PREVIOUS: Final = "previous-sha256"
_UNTIL: Final = "previous-until"
_OCTETS: Final = 32
_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One secret that counts, by its digest: for which pool, for which Machine, and until when."""

    digest: str
    pool: str
    # NAMESPACE/NAME, and the UID; empty: it is the pool's.
    machine: str = ""
    machine_uid: str = ""
    until: datetime.datetime | None = None
    # The name of the Secret.
    secret: str


def generate(random: Callable[[int], bytes]) -> str:
    """A new text, from this source of random octets (1)."""
    return base64.urlsafe_b64encode(random(_OCTETS)).rstrip(b"=").decode("ascii")


def digest(text: str) -> str:
    """What is kept of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def machine_secret_name(machine: str) -> str:
    """The Secret of a Machine's own secret."""
    return f"ignition-machine-{machine}"


def pool_secret_name(pool: str) -> str:
    """The Secret of a pool's secret."""
    return f"ignition-pool-{pool}"


def for_machine(machine: inventory.Machine, pool: str, text: str) -> objects.Document:
    """The Secret for one Machine (2)."""
    annotations = {MACHINE: f"{machine.namespace}/{machine.name}", MACHINE_UID: machine.uid, POOL: pool}
    return _document(machine_secret_name(machine.name), OF_MACHINE, annotations, {_CURRENT: digest(text)})


def for_pool(pool: str, text: str) -> objects.Document:
    """The Secret for a pool that has none."""
    return _document(pool_secret_name(pool), OF_POOL, {POOL: pool}, {_CURRENT: digest(text)})


def rotated(document: Mapping[str, Any], text: str, until: datetime.datetime) -> dict[str, Any]:
    """What changes in a pool's Secret when it gets another text, and the one before counts until this instant (3)."""
    values = {_CURRENT: digest(text), _PREVIOUS: _value(document, _CURRENT), _UNTIL: objects.timestamp(until)}
    return {"data": {key: _encoded(value) for key, value in values.items()}}


def read(document: Mapping[str, Any]) -> tuple[Entry, ...]:
    """The secrets that a Secret tells of; none where it is no Secret of ours (4)."""
    return tuple(_entries(document))


def _entries(document: Mapping[str, Any]) -> Iterator[Entry]:
    name, pool = jsonpath.text(document, "metadata", "name"), _annotation(document, POOL)
    scope = jsonpath.text(document, "metadata", "labels", LABEL)
    current = _value(document, _CURRENT)
    if not pool or _DIGEST.match(current) is None:
        return
    if scope == OF_MACHINE:
        machine, uid = _annotation(document, MACHINE), _annotation(document, MACHINE_UID)
        # 2. without a UID it is nobody's
        if uid and name == machine_secret_name(machine.partition("/")[2]):
            yield Entry(digest=current, pool=pool, machine=machine, machine_uid=uid, secret=name)
    elif scope == OF_POOL and name == pool_secret_name(pool):
        yield Entry(digest=current, pool=pool, secret=name)
        # 3. the one before, until an instant
        before, until = _value(document, _PREVIOUS), _instant(_value(document, _UNTIL))
        if _DIGEST.match(before) is not None and until is not None:
            yield Entry(digest=before, pool=pool, until=until, secret=name)


def _document(name: str, scope: str, annotations: dict[str, str], values: dict[str, str]) -> objects.Document:
    if (wrong := objects.dns_subdomain(name)) is not None:
        raise errors.Refused(f"no Secret can be called {name!r}: {wrong}", reason="BadName")
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": name,
            "namespace": bootstrapper.NAMESPACE,
            "labels": {LABEL: scope},
            "annotations": annotations,
        },
        "data": {key: _encoded(value) for key, value in values.items()},
    }


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode("ascii")).decode("ascii")


def _value(document: Mapping[str, Any], key: str) -> str:
    try:
        return base64.b64decode(jsonpath.text(document, "data", key), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return ""


def _annotation(document: Mapping[str, Any], key: str) -> str:
    return jsonpath.text(document, "metadata", "annotations", key)


def _instant(text: str) -> datetime.datetime | None:
    try:
        return objects.parse_timestamp(text)
    except ValueError:
        return None
