# SPDX-License-Identifier: Apache-2.0
"""Query parameters of reads -> checked options, refused in Kubernetes' words where they make no sense.

It reads text and looks at no object; `reads` and `watch` act on the options.
"""

from __future__ import annotations

import base64
import functools

import msgspec

from handfast.api import kinds, selectors, status
from handfast.apiserver import request
from handfast.apiserver.state import items

EXACT = "Exact"
NOT_OLDER_THAN = "NotOlderThan"
# In a continue token: the client accepted an inconsistent continuation after its version was compacted.
INCONSISTENT = -1


class Selection(msgspec.Struct, frozen=True):
    """Which objects of a collection are meant."""

    labels: selectors.LabelSelector
    fields: selectors.FieldSelector
    paths: tuple[tuple[str, str], ...]

    @property
    def everything(self) -> bool:
        return self.labels.empty and self.fields.empty

    @property
    def terms(self) -> int:
        """How much there is to compare."""
        return len(self.labels.requirements) + len(self.fields.terms)

    def matches(self, item: items.Item) -> bool:
        if not self.fields.empty and not self.fields.match(item.fields(self.paths)):
            return False
        return self.labels.empty or self.labels.match(item.labels())


class Continue(msgspec.Struct, frozen=True):
    """Where a paged list goes on: the version of its first page and the last key sent."""

    rv: int
    start: str
    v: str = "meta.k8s.io/v1"

    def text(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> Continue:
        try:
            continues = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=cls)
        # The nesting of hostile JSON ends in a RecursionError.
        except (ValueError, msgspec.DecodeError, RecursionError):
            raise status.bad_request("continue key is not valid: it does not decode") from None
        if (
            continues.v != "meta.k8s.io/v1"
            or "\0" in continues.start
            or continues.rv == 0
            or continues.rv < INCONSISTENT
        ):
            raise status.bad_request("continue key is not valid: it was not made by this server")
        return continues


class ListOptions(msgspec.Struct, frozen=True):
    """A list's or watch's parameters, checked. `version` is None when none was given."""

    selection: Selection
    limit: int
    continues: Continue | None
    version: int | None
    match: str
    bookmarks: bool = False
    initial_events: bool | None = None
    timeout: int = 0


def selection(kind: kinds.Kind, info: request.RequestInfo) -> Selection:
    label_text = info.query.get("labelSelector", "")
    field_text = info.query.get("fieldSelector", "")
    if info.name:
        # A watch or list of one name: the old way to follow a single object.
        field_text = f"{field_text},metadata.name={info.name}" if field_text else f"metadata.name={info.name}"
    if not label_text and not field_text:
        return _EVERYTHING
    if len(label_text) + len(field_text) > _REMEMBERED_LENGTH:
        # Not remembered: they are for filling memory.
        return _selection(kind.selectable_items, label_text, field_text)
    return _remembered(kind.selectable_items, label_text, field_text)


def _selection(selectable: tuple[tuple[str, str], ...], label_text: str, field_text: str) -> Selection:
    labels = selectors.parse_labels(label_text)
    fields = selectors.parse_fields(field_text)
    known = dict(selectable)
    own = [name for name in fields.fields if name not in {"metadata.name", "metadata.namespace"}]
    for name in own:
        if name not in known:
            raise status.bad_request(_unknown_field(name, has_own=bool(known)))
    # All of the kind's fields or none: an item keeps them once they were asked for.
    return Selection(labels, fields, selectable if own else ())


_REMEMBERED_LENGTH = 512
_remembered = functools.lru_cache(maxsize=1024)(_selection)


_EVERYTHING = Selection(selectors.parse_labels(""), selectors.parse_fields(""), ())


def _unknown_field(name: str, *, has_own: bool) -> str:
    if has_own:
        return f"field label not supported: {name}"
    return f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def resource_version(info: request.RequestInfo) -> int | None:
    text = info.query.get("resourceVersion", "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise status.bad_request(f'Invalid value: "{text}": resourceVersion must be an unsigned integer')
    return int(text)


def _number(info: request.RequestInfo, name: str) -> int:
    text = info.query.get(name, "")
    if not text:
        return 0
    digits = text[1:] if text[0] == "-" else text
    if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
        raise status.bad_request(f'{name}: invalid value "{text}": an integer is wanted')
    return max(0, int(text))


def parse(kind: kinds.Kind, info: request.RequestInfo, *, watch: bool) -> ListOptions:
    """The options of a list, watch or deletecollection."""
    query = info.query
    continue_text = query.get("continue", "")
    version = resource_version(info)
    match = query.get("resourceVersionMatch", "")
    initial = info.flag("sendInitialEvents") if "sendInitialEvents" in query else None
    causes = list(_problems(match, version, continue_text, initial, watch=watch))
    if causes:
        raise status.invalid("ListOptions", "meta.k8s.io", "", causes)
    if continue_text and version:
        raise status.bad_request("specifying resource version is not allowed when using continue")
    return ListOptions(
        selection=selection(kind, info),
        limit=_number(info, "limit"),
        continues=Continue.parse(continue_text) if continue_text else None,
        version=version,
        match=match,
        bookmarks=info.flag("allowWatchBookmarks"),
        initial_events=initial,
        timeout=_number(info, "timeoutSeconds"),
    )


def _problems(
    match: str, version: int | None, continue_text: str, initial: bool | None, *, watch: bool
) -> list[status.Cause]:
    causes = []

    def forbid(field: str, message: str) -> None:
        causes.append(status.Cause("FieldValueForbidden", f"Forbidden: {message}", field))

    if match and match not in {EXACT, NOT_OLDER_THAN}:
        text = f'Unsupported value: "{match}": supported values: "{EXACT}", "{NOT_OLDER_THAN}"'
        causes.append(status.Cause("FieldValueNotSupported", text, "resourceVersionMatch"))
    if watch:
        if match and initial is None:
            forbid(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )
        if initial is not None and match != NOT_OLDER_THAN:
            forbid(
                "resourceVersionMatch",
                f"sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER_THAN}",
            )
        return causes
    if initial is not None:
        forbid("sendInitialEvents", "sendInitialEvents is forbidden for list")
    if match:
        if continue_text:
            forbid("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
        elif version is None:
            forbid("resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided")
        elif match == EXACT and version == 0:
            forbid("resourceVersionMatch", 'resourceVersionMatch "Exact" is forbidden for resourceVersion "0"')
    return causes
