# SPDX-License-Identifier: Apache-2.0
"""How much one body, and one object, may hold: counted on the bytes, before anything is decoded or validated.

Three bytes become a list, so the length of a body says little about what it costs. Counted are *values*: objects, lists,
and what is in them. Decoding costs 0.1 µs for each, everything after it some 10 µs.

1. A body is light if it cannot have more than `LIGHT` values, nor more than `LIGHT_TEXT` bytes: it is worked on where it arrived. Nearly
   all are. What looks like a value inside a text counts here, since telling them apart would cost more than it saves.
2. Any other is heavy: it is worked on aside, and no body of its kind may have more values than `limit` says (413).
3. Lists that no honest client makes long are bounded by name (422): see `items`.
4. An object that grew by patches is held to the same number when it is stored.

| who | holding | tries | stopped by | shown in tests/unit/api/codec/test_bounds.py |
|---|---|---|---|---|
| whoever may write anything | a credential | three megabytes of `{}` | 2 | test_a_body_of_empty_objects_is_counted |
| a joining machine | a bootstrap token | a request with a hundred thousand usages | 2, 3 | test_a_certificate_request_is_small |
| whoever may patch | a credential | an object that grows patch by patch | 4 | test_an_object_is_counted_as_it_is_stored |
| whoever may write anything | a credential | to have commas in a text taken for values, or the reverse | 2: texts are told apart | test_texts_are_no_values |

`apiserver.limits` says how long a body may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from handfast.api import field_errors as fields
from handfast.api import kinds, status
from handfast.api.codec import counting

# Worked on where it arrived: some 5 to 10 ms for the dearest way through, server-side apply.
LIGHT: Final = 1000
# Shorter ones are light without a look: of these bytes, at most every second is a value.
LIGHT_BYTES: Final = 2 * LIGHT
# Expressions look at texts again and again: one of a megabyte is searched in 2 ms, and thirty of them may be asked.
LIGHT_TEXT: Final = 64 << 10
# What looks like a value: one begins behind each of them.
_SIGNS: Final = (b",", b"{", b"[")
# Twice what the largest definitions in use have.
MANY: Final = 100_000
# A Pod with a hundred containers has some 5,000; the record of its owners as many again for each.
USUAL: Final = 30_000
# A question may name somebody's thousand groups.
QUESTION: Final = 5000
# Small by nature: a request for a certificate has some 30 values, an Event 50. Where a list is somewhat too long, 422 names it.
FEW: Final = 2000
# Ten thousand operations, with what each of them has.
PATCH: Final = 60_000

_FEW: Final = frozenset(
    {
        ("certificates.k8s.io", "certificatesigningrequests"),
        ("coordination.k8s.io", "leases"),
        ("", "events"),
        ("events.k8s.io", "events"),
    }
)
_MANY: Final = frozenset(
    {
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("", "endpoints"),
        ("discovery.k8s.io", "endpointslices"),
    }
)
# 3. How many items a list may have: of every object, and of some kinds. There are 23 usages of keys.
# `managedFields` has room for every applier that `merging.managed_fields` lets in, and for those who only update beside them: who
# applies a lot must not keep a node, or a controller that takes a finalizer away, from writing.
_METADATA_ITEMS: Final = {"ownerReferences": 256, "finalizers": 256, "managedFields": 256 + 10}
_ITEMS: Final[Mapping[tuple[str, str], Mapping[tuple[str, str], int]]] = {
    ("certificates.k8s.io", "certificatesigningrequests"): {("spec", "usages"): 64, ("status", "conditions"): 64},
    ("", "nodes"): {
        ("spec", "taints"): 256,
        ("spec", "podCIDRs"): 64,
        ("status", "addresses"): 256,
        ("status", "conditions"): 256,
        ("status", "images"): 5000,
        ("status", "volumesInUse"): 5000,
        ("status", "volumesAttached"): 5000,
    },
    ("", "pods"): {
        ("spec", "containers"): 1000,
        ("spec", "initContainers"): 1000,
        ("spec", "ephemeralContainers"): 1000,
        ("spec", "volumes"): 1000,
        ("spec", "tolerations"): 1000,
        ("spec", "imagePullSecrets"): 1000,
    },
    ("rbac.authorization.k8s.io", "roles"): {("rules", ""): 2000},
    ("rbac.authorization.k8s.io", "clusterroles"): {("rules", ""): 2000},
    ("rbac.authorization.k8s.io", "rolebindings"): {("subjects", ""): 2000},
    ("rbac.authorization.k8s.io", "clusterrolebindings"): {("subjects", ""): 2000},
}


def limit(kind: kinds.Kind) -> int:
    """How many values a body, and a stored object, of this kind may have."""
    if not kind.message or kind.resource in _MANY:
        return MANY
    if kind.resource in _FEW:
        return FEW
    return QUESTION if kind.group in kinds.REVIEW_GROUPS else USUAL


def is_light(body: bytes) -> bool:
    """Whether a body is light: it cannot have many values, nor long texts (1)."""
    return len(body) <= LIGHT_BYTES or (len(body) <= LIGHT_TEXT and counting.at_most(body, _SIGNS, LIGHT))


def values(body: bytes, most: int) -> int:
    """How many values a JSON text has (2). `most` stands for "at most so many"; counting ends above it.

    An object or a list counts once for itself, and what it holds once for each comma. A text that is no JSON gets some
    number, too.
    """
    # At the speed of memory: what passes here needs no closer look.
    if _at_most(body, most):
        return most
    count = start = 0
    in_text = False
    while start < len(body) and count <= most:
        end = _part_end(body, start)
        # Escaped quotes end no text. In pairs first: the second backslash of a pair escapes nothing.
        part = body[start:end].replace(b"\\\\", b"").replace(b'\\"', b"")
        pieces = part.split(b'"')
        for piece in pieces[1 if in_text else 0 :: 2]:
            count += piece.count(b",") + piece.count(b"{") + piece.count(b"[")
        in_text ^= len(pieces) % 2 == 0
        start = end
    return count


# So much is looked at in one call: other threads get their turn in between.
_PART = 32 << 10


def _at_most(body: bytes, most: int) -> bool:
    """Whether there cannot be more, even if all that looks like a value were one."""
    count = 0
    for start in range(0, len(body), _PART):
        end = start + _PART
        count += body.count(b",", start, end) + body.count(b"{", start, end) + body.count(b"[", start, end)
        if count > most:
            return False
    return True


def _part_end(body: bytes, start: int) -> int:
    """Where a part ends that begins at `start`: never between a backslash and what it escapes."""
    end = min(start + _PART, len(body))
    while end < len(body) and body[end - 1] == 0x5C:
        end += 1
    return end


def require(count: int, most: int, what: str) -> None:
    """Refuse a body or an object with too many values: 413 (2). `what` names whose they are."""
    if count > most:
        raise status.StatusError(
            "RequestEntityTooLarge",
            f"Request entity too large: the {what} has more than {most} values (fields and items of lists)",
        )


def items(kind: kinds.Kind, document: Mapping[str, Any]) -> list[status.Cause]:
    """The lists of a document that are longer than lists of that name may be (3)."""
    metadata = document.get("metadata")
    causes = []
    if isinstance(metadata, dict):
        for name, most in _METADATA_ITEMS.items():
            value = metadata.get(name)
            if isinstance(value, list) and len(value) > most:
                causes.append(fields.too_many(f"metadata.{name}", len(value), most))
    for (first, second), most in _ITEMS.get(kind.resource, {}).items():
        value = document.get(first)
        if second and isinstance(value, dict):
            value = value.get(second)
        if isinstance(value, list) and len(value) > most:
            causes.append(fields.too_many(f"{first}.{second}" if second else first, len(value), most))
    return causes
