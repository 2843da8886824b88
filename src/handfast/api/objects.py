# SPDX-License-Identifier: Apache-2.0
"""What every object has: apiVersion, kind and metadata, and the rules for names.

Documents are plain dictionaries; the functions here read and check the parts that all kinds share. What single kinds
require is in `validation`.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Any

Document = dict[str, Any]

# Of the metadata, what only the server sets.
SERVER_SET = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)
# The finalizers that the garbage collector works with: delete the dependents first, or leave them without an owner.
FINALIZER_FOREGROUND = "foregroundDeletion"
FINALIZER_ORPHAN = "orphan"
# The address of the Service `default/kubernetes`, first of Kubernetes' usual network; serving certificates name it.
KUBERNETES_SERVICE_IP = "10.96.0.1"
SERVICE_RANGE = "10.96.0.0/12"

# RFC 1123 and 1035, as Kubernetes reads them. `\Z`, because `$` would let a trailing newline through.
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?\Z")

SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
# The same for people, who need no regular expression.
SUBDOMAIN_WORDS = (
    "a name has lower-case letters, digits, '-' and '.', begins and ends with a letter or digit, and is at most 253 "
    "characters long"
)
WILDCARD_TEXT = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower "
    "case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used "
    "for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
DNS_1035_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def dns_subdomain(name: str) -> str | None:
    """None if `name` is one, else what is wrong."""
    if len(name) > 253:
        return "must be no more than 253 bytes"
    return None if _SUBDOMAIN.match(name) else SUBDOMAIN_TEXT


def wildcard_subdomain(name: str) -> str | None:
    """`*.example.com`: for hosts that stand for all names below one."""
    if len(name) > 253:
        return "must be no more than 253 bytes"
    return None if name.startswith("*.") and _SUBDOMAIN.match(name[2:]) else WILDCARD_TEXT


def dns_label(name: str) -> str | None:
    if len(name) > 63:
        return "must be no more than 63 bytes"
    return None if _LABEL.match(name) else LABEL_TEXT


def dns_1035_label(name: str) -> str | None:
    if len(name) > 63:
        return "must be no more than 63 bytes"
    return None if _DNS_1035.match(name) else DNS_1035_TEXT


def path_segment(name: str) -> str | None:
    """RBAC objects may have any name that fits into a path. Unlike in Kubernetes, all of it can be printed."""
    if name in {".", ".."}:
        return f"may not be '{name}'"
    if len(name) > 253:
        return "must be no more than 253 bytes"
    if not name.isprintable():
        return "may not contain characters that cannot be printed"
    for character in "/%":
        if character in name:
            return f"may not contain '{character}'"
    return None


def qualified_name(name: str) -> str | None:
    """Keys of labels and annotations: an optional DNS prefix, a slash, a name."""
    prefix, slash, local = name.rpartition("/")
    if slash and (not prefix or _SUBDOMAIN.match(prefix) is None or len(prefix) > 253):
        return "prefix part " + SUBDOMAIN_TEXT
    if not local:
        return "name part must be non-empty"
    if len(local) > 63:
        return "name part must be no more than 63 bytes"
    if _QUALIFIED.match(local) is None:
        return (
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
            "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        )
    return None


def label_value(value: str) -> str | None:
    if len(value) > 63:
        return "must be no more than 63 bytes"
    if _LABEL_VALUE.match(value) is None:
        return (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
            "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for "
            "validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        )
    return None


def timestamp(instant: datetime.datetime) -> str:
    """An instant in UTC as RFC 3339 with whole seconds: the form of `metadata.creationTimestamp`."""
    return instant.isoformat(timespec="seconds")[:19] + "Z"


def micro_timestamp(instant: datetime.datetime) -> str:
    """An instant in UTC as RFC 3339 with microseconds: the form of Lease times and Event times."""
    return instant.isoformat(timespec="microseconds")[:26] + "Z"


def parse_timestamp(text: str) -> datetime.datetime:
    """The instant a timestamp of either form names; ValueError if it is none, or one of a year that there is not in UTC."""
    instant = datetime.datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    try:
        return instant.astimezone(datetime.UTC)
    except OverflowError:
        raise ValueError(f"{text!r} is before the year 1 or after the year 9999") from None


def space_and_name(path: str) -> tuple[str, str]:
    """Namespace and name from `namespace/name`, or from a bare name (no namespace)."""
    namespace, slash, name = path.partition("/")
    return (namespace, name) if slash else ("", path)


def metadata(document: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a checked document."""
    found = document.get("metadata")
    return found if isinstance(found, dict) else {}


def lookup(document: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path of plain fields, or None."""
    value: Any = document
    for part in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def field_text(document: Mapping[str, Any], path: str) -> str:
    """The value at a path as field selectors compare it: booleans are words.

    `a.b?x` says what absent means; of `a|b` the first that is there, and not empty, counts.
    """
    path, _, absent = path.partition("?")
    value = next((found for each in path.split("|") if (found := lookup(document, each)) not in (None, "")), None)
    if value is None:
        return absent
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
