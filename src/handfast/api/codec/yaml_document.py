# SPDX-License-Identifier: Apache-2.0
"""Read one YAML document as JSON data, the way Kubernetes reads YAML, from the parser's events.

It reads events rather than use PyYAML's own constructor, because a body comes from a stranger. Events are read without
recursion. An alias can be refused before it expands (271 bytes of aliases can become 100 MB). A repeated key is still
visible. It does not care what the document means, nor what it is for. What is refused:

1. bytes that are not UTF-8, also those that a tag spells with %, and text that is not YAML;
2. aliases, merge keys (<<) and tags other than !!str;
3. keys that are not strings;
4. .nan and .inf, which JSON cannot say;
5. more than one document, more levels than `nesting` allows, and more than `MAX_NODES` keys and values: three bytes
   become a list, and the parser needs seconds for a million of them.

Scalars follow YAML 1.1 as Go's library has it: y, yes and on are booleans, 010 is eight; but 2024-01-01 and 1:30 are
strings, where PyYAML would make a date and a number to base 60.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import yaml

from handfast import errors
from handfast.api import field_path
from handfast.api.codec import nesting

_STR_TAGS: Final = ("tag:yaml.org,2002:str", "!")
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS: Final = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_INT = re.compile(r"([-+]?)(?:0b([01][01_]*)|0x([0-9a-fA-F][0-9a-fA-F_]*)|0o?([0-7][0-7_]*)|(0|[1-9][0-9_]*))\Z")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z")
_BASES: Final = (2, 16, 8, 10)

# Python does not print longer ones; nothing in the API comes near.
_MAX_DIGITS: Final = 1000

_ABSENT: Final = object()

# A refusal should not outgrow the request.
MAX_DUPLICATES = 100
# Twice what the largest definitions have. JSON has no such limit: it is read far faster.
MAX_NODES: Final = 100_000


class Repeat(NamedTuple):
    """A key that its mapping has already, and the line in which it comes again."""

    line: int
    key: str


@dataclass(slots=True)
class _Open:
    """A mapping or sequence whose end has not been read; `key` is the mapping's key that awaits its value."""

    value: Any
    key: Any = _ABSENT


@dataclass(slots=True)
class _Builder:
    """The document so far, and the repeated keys met on the way."""

    stack: list[_Open] = field(default_factory=list)
    duplicates: dict[str, Repeat] = field(default_factory=dict)
    root: Any = None
    # The line of the event that is being read.
    line: int = 0
    # The line that each value begins in, by its path; None: nobody asks.
    lines: dict[str, int] | None = None

    def path(self) -> str:
        """Where the next value goes."""
        return field_path.render(len(top.value) if isinstance(top.value, list) else top.key for top in self.stack)

    @property
    def awaits_key(self) -> bool:
        return bool(self.stack) and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is _ABSENT

    def open(self, value: Any) -> None:
        if self.awaits_key:
            raise errors.Refused("a key must be a string, not a mapping or a sequence")
        if len(self.stack) == nesting.MAX_DEPTH:
            raise errors.Refused(nesting.TOO_DEEP, reason=nesting.REASON)
        self.stack.append(_Open(value))

    def close(self) -> None:
        self.add(self.stack.pop().value)

    def add(self, value: Any) -> None:
        if not self.stack:
            self.root = value
            return
        top = self.stack[-1]
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.key is not _ABSENT:
            top.value[top.key] = value
            top.key = _ABSENT
        elif isinstance(value, str):
            top.key = value
            if value in top.value and len(self.duplicates) < MAX_DUPLICATES:
                self.duplicates.setdefault(self.path(), Repeat(self.line, value))
        else:
            raise errors.Refused("a key must be a string: put it in quotes")


def load(body: bytes) -> tuple[Any, list[str]]:
    """The only document of a YAML stream, and the paths of the keys it repeats; the last of them wins."""
    value, repeats = load_with_repeats(body)
    return value, list(repeats)


def load_with_repeats(body: bytes) -> tuple[Any, dict[str, Repeat]]:
    """The same, and of each key that is repeated the line, too."""
    builder = _read(body, _Builder(), MAX_NODES)
    return builder.root, builder.duplicates


def load_with_lines(body: bytes, max_nodes: int) -> tuple[Any, list[str], dict[str, int]]:
    """The same of a file of the caller's own, which may be longer; and the line that each value begins in, by its path."""
    lines: dict[str, int] = {}
    builder = _read(body, _Builder(lines=lines), max_nodes)
    return builder.root, list(builder.duplicates), lines


def _read(body: bytes, builder: _Builder, max_nodes: int) -> _Builder:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise errors.Refused("the text is not valid UTF-8") from None
    documents = nodes = 0
    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            nodes += isinstance(event, yaml.NodeEvent)
            if nodes > max_nodes:
                raise errors.Refused(f"the document has more than {max_nodes} keys and values: send it as JSON")
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise errors.Refused("there must be one document, there are several")
            mark: Any = event.start_mark
            builder.line = mark.line + 1
            if builder.lines is not None and isinstance(event, yaml.NodeEvent) and not builder.awaits_key:
                builder.lines[builder.path()] = builder.line
            _apply(builder, event)
    except yaml.YAMLError as error:
        raise errors.Refused(_problem(error)) from None
    except UnicodeDecodeError:
        # libyaml takes surrogates in a tag (`!%ED%A0%80`), and Python does not.
        raise errors.Refused("a tag in it is not valid UTF-8") from None
    return builder


def _problem(error: yaml.YAMLError) -> str:
    """What is wrong and where, without the line itself: it may be a secret."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return str(getattr(error, "reason", "not YAML"))


def _apply(builder: _Builder, event: yaml.Event) -> None:
    if isinstance(event, yaml.AliasEvent):
        raise errors.Refused("aliases are not accepted: write the value out")
    if isinstance(event, yaml.ScalarEvent):
        builder.add(_scalar(event))
    elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
        if event.tag not in {None, "!"}:
            raise errors.Refused("only the tag !!str is accepted")
        builder.open({} if isinstance(event, yaml.MappingStartEvent) else [])
    elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
        builder.close()


def _scalar(event: yaml.ScalarEvent) -> Any:
    value: str = event.value
    if event.tag is not None:
        if event.tag in _STR_TAGS:
            return value
        raise errors.Refused("only the tag !!str is accepted")
    if not event.implicit[0]:
        return value
    if value == "<<":
        raise errors.Refused("merge keys (<<) are not accepted: write the fields out")
    return _plain(value)


def is_text(value: str) -> bool:
    """Whether a text is read as itself without quotes, as far as its letters go; else it would be a number, a boolean or nothing."""
    try:
        return isinstance(_plain(value), str)
    except errors.Refused:
        return False


def _plain(value: str) -> Any:
    if value in _NULLS:
        return None
    if value in _BOOLS:
        return _BOOLS[value]
    if _NOT_FINITE.match(value):
        raise errors.Refused("a number is not finite, which JSON cannot say")
    if match := _INT.match(value):
        if len(value) > _MAX_DIGITS:
            raise errors.Refused(f"a number has more than {_MAX_DIGITS} digits")
        digits, base = next((group, base) for group, base in zip(match.groups()[1:], _BASES, strict=True) if group)
        return int(match[1] + digits.replace("_", ""), base)
    if _FLOAT.match(value):
        number = float(value.replace("_", ""))
        if math.isinf(number):
            raise errors.Refused("a number is out of range")
        return number
    return value
