# SPDX-License-Identifier: Apache-2.0
"""When a certificate request has had its time and may be deleted: the first instant at which one of seven rules holds.

It does not delete, and no rule looks at who sent the request.

| rule       | the request is                             | counted from                | for  |
|------------|--------------------------------------------|-----------------------------|------|
| issued     | approved and has its certificate           | the approval's last update  | 1 h  |
| unissued   | approved and has none                      | the approval's last update  | 1 h  |
| denied     | denied                                     | the denial's last update    | 1 h  |
| failed     | failed                                     | the failure's last update   | 1 h  |
| pending    | without any condition                      | its creation                | 24 h |
| expired    | approved, its certificate is past notAfter | notAfter                    | 0    |
| old        | with any condition                         | its creation                | 24 h |

As in KEP-266: 24 hours at most, one hour once approved or denied. Kubernetes lets an approved request without a
certificate live for 24 hours after its approval; here its requester asks anew after one.

1. An age must be greater than the rule's, not equal to it.
2. A time that is missing, zero or cannot be read starts no clock: the rule does not hold, however old the request is.
3. A certificate that cannot be read does not expire; the rule `issued` takes it away.
"""

from __future__ import annotations

import base64
import binascii
import datetime
from collections.abc import Iterator

import msgspec

from handfast import errors
from handfast.api import objects, signing_requests
from handfast.pki import certificates, pem

FINISHED = datetime.timedelta(hours=1)
WAITING = datetime.timedelta(hours=24)

_AT_ONCE = datetime.timedelta()
# Kubernetes' zero time, as some of its clients write it.
_ZERO = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC)


class Due(msgspec.Struct, frozen=True):
    """The instant from which on the request may be deleted, by which rule, and whether that is past.

    Without an instant no rule ever holds for the request as it is now, and `rule` is empty.
    """

    at: datetime.datetime | None
    rule: str
    overdue: bool


def due(item: signing_requests.Request, now: datetime.datetime) -> Due:
    """When the request may be deleted, as it is now."""
    first = min(_instants(item), default=None)
    if first is None:
        return Due(None, "", overdue=False)
    at, rule = first
    return Due(at, rule, overdue=at <= now)


def _instants(item: signing_requests.Request) -> Iterator[tuple[datetime.datetime, str]]:
    for rule, since, age in _clocks(item):
        # 2. no time, no clock
        if since is None or since == _ZERO:
            continue
        # 1. greater than the rule's age
        try:
            at = since + age + datetime.datetime.resolution
        except OverflowError:
            continue
        yield at, rule


def _clocks(item: signing_requests.Request) -> Iterator[tuple[str, datetime.datetime | None, datetime.timedelta]]:
    conditions, certificate = item.status.conditions or (), item.status.certificate
    yield "old" if conditions else "pending", _time(item.metadata.creation_timestamp), WAITING
    for row in conditions:
        updated = _time(row.last_update_time)
        match row.type:
            case signing_requests.APPROVED if certificate:
                yield "issued", updated, FINISHED
                yield "expired", _not_after(certificate), _AT_ONCE
            case signing_requests.APPROVED:
                yield "unissued", updated, FINISHED
            case signing_requests.DENIED:
                yield "denied", updated, FINISHED
            case signing_requests.FAILED:
                yield "failed", updated, FINISHED
            case _:
                pass


def _time(text: str | None) -> datetime.datetime | None:
    try:
        return objects.parse_timestamp(text or "")
    except ValueError:
        return None


def _not_after(certificate: str) -> datetime.datetime | None:
    # 3. what cannot be read does not expire
    try:
        return certificates.validity(pem.certificates_from_pem(base64.b64decode(certificate, validate=True))[0])[1]
    except (binascii.Error, ValueError, errors.Refused):
        return None
