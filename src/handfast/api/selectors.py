# SPDX-License-Identifier: Apache-2.0
"""Label and field selectors: parse, print in one canonical form, match.

It does not decide which fields a kind can be selected by, nor how a field's value is read from an object: callers
hand `match` the labels, or a mapping from field to text. An empty LabelSelector object selects everything. An absent one
selects nothing in Kubernetes: that is for the caller to see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from handfast.api import objects, status

_BINARY = ("in", "notin", "=", "==", "!=", "gt", "lt")
_SYMBOLS = {"=": "=", "==": "=", "!=": "!=", ">": "gt", "<": "lt", "in": "in", "notin": "notin"}
_OBJECT_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
# Two-character operators come first, so that the longest one wins, as in Kubernetes.
_TOKEN = re.compile(r"[ \t\r\n]*(?:(==|!=|[=!(),<>])|([^ \t\r\n=!(),<>]+))")
# Nineteen digits hold every int64; `int` is never asked to read thousands of them.
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}\Z", re.ASCII)
_SPECIAL = frozenset({"=", "==", "!=", "!", "(", ")", ",", "<", ">"})


class Requirement(msgspec.Struct, frozen=True):
    """One condition on one label; `values` are sorted and without duplicates."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        match self.operator:
            case "exists":
                return self.key
            case "!":
                return "!" + self.key
            case "in" | "notin":
                return f"{self.key} {self.operator} ({','.join(self.values)})"
            case operator:
                return self.key + {"gt": ">", "lt": "<"}.get(operator, operator) + self.values[0]

    def match(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "exists":
                return value is not None
            case "!":
                return value is None
            case "=" | "in":
                return value in self.values
            case "!=" | "notin":
                return value not in self.values
            case operator:
                if value is None or not _INTEGER.match(value):
                    return False
                bound = int(self.values[0])
                return int(value) > bound if operator == "gt" else int(value) < bound


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A conjunction of requirements, sorted; none at all matches every object."""

    requirements: tuple[Requirement, ...] = ()
    # Equalities are taken apart once, because nearly every watch has just one of them.
    _equalities: tuple[tuple[str, str], ...] = field(init=False, repr=False, compare=False)
    _others: tuple[Requirement, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        equal = tuple((each.key, each.values[0]) for each in self.requirements if each.operator == "=")
        object.__setattr__(self, "_equalities", equal)
        object.__setattr__(self, "_others", tuple(each for each in self.requirements if each.operator != "="))

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))

    @property
    def empty(self) -> bool:
        return not self.requirements

    def match(self, labels: Mapping[str, str] | None) -> bool:
        if labels is None:
            labels = {}
        for key, value in self._equalities:
            if labels.get(key) != value:
                return False
        for requirement in self._others:  # noqa: SIM110  a generator here would double the cost of a match
            if not requirement.match(labels):
                return False
        return True


EVERYTHING = LabelSelector()
MAX_REQUIREMENTS = 64
MAX_WORDS = 1000


def parse_labels(text: str) -> LabelSelector:
    """The selector that a `labelSelector` parameter says; 400 with Kubernetes' text if it says none."""
    if not text:
        return EVERYTHING
    # Every open watch compares them with every change.
    if text.count(",") >= MAX_WORDS:
        raise status.bad_request(f"unable to parse requirement: there are more than {MAX_WORDS} terms and values")
    selector = _selector(list(_LabelParser(text).requirements()))
    if len(selector.requirements) > MAX_REQUIREMENTS:
        raise status.bad_request(f"unable to parse requirement: there are more than {MAX_REQUIREMENTS} terms")
    return selector


def _selector(requirements: Sequence[Requirement]) -> LabelSelector:
    unique = set(requirements)
    return LabelSelector(tuple(sorted(unique, key=lambda each: (each.key, each.operator, each.values))))


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _check_key(key: str, where: str) -> None:
    if wrong := objects.qualified_name(key):
        raise status.bad_request(f"{where}: Invalid value: {_quoted(key)}: {wrong}")


def _requirement(key: str, operator: str, values: Sequence[str]) -> Requirement:
    """A checked requirement: its values must be label values and as many as the operator takes."""
    values = sorted(set(values))
    if operator in {"in", "notin"} and not values:
        raise status.bad_request("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty")
    if operator in {"exists", "!"} and values:
        listed = ",".join(map(_quoted, values))
        raise status.bad_request(
            f"values: Invalid value: [{listed}]: values set must be empty for exists and does not exist"
        )
    if operator in {"gt", "lt"} and not (_INTEGER.match(values[0]) and -(2**63) <= int(values[0]) < 2**63):
        raise status.bad_request(
            f"values[0]: Invalid value: {_quoted(values[0])}: for 'Gt', 'Lt' operators, the value must be an integer"
        )
    for index, value in enumerate(values):
        if wrong := objects.label_value(value):
            raise status.bad_request(f"values[{index}][{key}]: Invalid value: {_quoted(value)}: {wrong}")
    return Requirement(key, operator, tuple(values))


class _LabelParser:
    """Recursive descent over the tokens; `in` and `notin` are keywords only where an operator may stand."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        end = 0
        while token := _TOKEN.match(text, end):
            self._tokens.append(token[1] or token[2])
            end = token.end()
        self._next = 0

    def _peek(self) -> str:
        """The next token; "" is the end of the text."""
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._next += 1
        return token

    def requirements(self) -> Iterator[Requirement]:
        while literal := self._peek():
            if literal in _SPECIAL and literal != "!":
                raise status.bad_request(f"found '{literal}', expected: !, identifier, or 'end of string'")
            try:
                yield self._one()
            except status.StatusError as error:
                raise status.bad_request(f"unable to parse requirement: {error.message}") from error
            after = self._take()
            if not after:
                return
            if after != ",":
                raise status.bad_request(f"found '{after}', expected: ',' or 'end of string'")
            follows = self._peek()
            if not follows or (follows in _SPECIAL and follows != "!"):
                raise status.bad_request(f"found '{follows}', expected: identifier after ','")

    def _one(self) -> Requirement:
        absent = self._peek() == "!"
        if absent:
            self._take()
        key = self._take()
        if not key or key in _SPECIAL:
            raise status.bad_request(f"found '{key}', expected: identifier")
        # Kubernetes prints the missing path of the key this way, and people search for the text.
        _check_key(key, "<nil>")
        if absent:
            return _requirement(key, "!", ())
        if self._peek() in {"", ","}:
            return _requirement(key, "exists", ())
        symbol = self._take()
        operator = _SYMBOLS.get(symbol)
        if operator is None:
            raise status.bad_request(f"found '{symbol}', expected: {', '.join(_BINARY)}")
        values = self._set() if operator in {"in", "notin"} else [self._exact()]
        return _requirement(key, operator, values)

    def _exact(self) -> str:
        if self._peek() in {"", ","}:
            return ""
        value = self._take()
        if value in _SPECIAL:
            raise status.bad_request(f"found '{value}', expected: identifier")
        return value

    def _set(self) -> list[str]:
        opening = self._take()
        if opening != "(":
            raise status.bad_request(f"found '{opening}' expected: '('")
        values = [self._member()]
        while self._peek() == ",":
            self._take()
            values.append(self._member())
        closing = self._take()
        if closing != ")":
            raise status.bad_request(f"found '{closing}', expected: ',', or ')'")
        return values

    def _member(self) -> str:
        """One value of a set; nothing before a comma or the end is the empty value, so `()` holds just that."""
        if self._peek() in {",", ")"}:
            return ""
        value = self._take()
        if not value or value in _SPECIAL:
            raise status.bad_request(f"found '{value}', expected: ',', ')' or identifier")
        return value


def from_label_selector(document: Mapping[str, Any]) -> LabelSelector:
    """The selector that a LabelSelector object (`matchLabels`, `matchExpressions`) says."""
    if not isinstance(document, Mapping):
        raise status.bad_request("a label selector must be an object with matchLabels and matchExpressions")
    labels = document.get("matchLabels") or {}
    expressions = document.get("matchExpressions") or []
    if not isinstance(labels, Mapping) or not all(isinstance(value, str) for value in labels.values()):
        raise status.bad_request("matchLabels: Invalid value: must be a map of strings")
    if not isinstance(expressions, list):
        raise status.bad_request("matchExpressions: Invalid value: must be a list of requirements")
    requirements = []
    for key, value in labels.items():
        _check_key(key, "key")
        requirements.append(_requirement(key, "=", [value]))
    requirements.extend(map(_expression, expressions))
    return _selector(requirements)


def _expression(document: Any) -> Requirement:
    if not isinstance(document, Mapping):
        raise status.bad_request("matchExpressions: Invalid value: each requirement must be an object")
    key, operator, values = document.get("key"), document.get("operator"), document.get("values") or []
    if not isinstance(key, str):
        raise status.bad_request("key: Invalid value: each requirement needs a string")
    if not isinstance(operator, str) or operator not in _OBJECT_OPERATORS:
        raise status.bad_request(f"{_quoted(str(operator))} is not a valid label selector operator")
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise status.bad_request("values: Invalid value: must be a list of strings")
    _check_key(key, "key")
    return _requirement(key, _OBJECT_OPERATORS[operator], values)


class FieldTerm(msgspec.Struct, frozen=True):
    """One condition on one field; an absent field has the empty value."""

    field: str
    value: str
    equal: bool = True

    def __str__(self) -> str:
        escaped = self.value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
        return f"{self.field}{'=' if self.equal else '!='}{escaped}"


class FieldSelector(msgspec.Struct, frozen=True):
    """A conjunction of terms, sorted; none at all matches every object."""

    terms: tuple[FieldTerm, ...] = ()

    def __str__(self) -> str:
        return ",".join(map(str, self.terms))

    @property
    def empty(self) -> bool:
        return not self.terms

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields it asks about, so that a kind can refuse those it does not offer."""
        return tuple(term.field for term in self.terms)

    def match(self, fields: Mapping[str, str]) -> bool:
        for term in self.terms:  # noqa: SIM110  a generator here would double the cost of a match
            if (fields.get(term.field, "") == term.value) is not term.equal:
                return False
        return True

    def requires_exact(self, name: str) -> str | None:
        """The one value that field `name` must have, or None if the selector leaves it open."""
        for term in self.terms:
            if term.equal and term.field == name:
                return term.value
        return None


EVERY_FIELD = FieldSelector()
MAX_TERMS = 128
# A comma ends a term unless a backslash stands before it.
_TERM = re.compile(r"(?:\\.|[^\\,]|\\\Z)+", re.DOTALL)
_OPERATOR = re.compile(r"!=|==|=")
_ESCAPED = re.compile(r"\\(.?)|[,=]", re.DOTALL)


def parse_fields(text: str) -> FieldSelector:
    """The selector that a `fieldSelector` parameter says; 400 with Kubernetes' text if it says none."""
    if not text:
        return EVERY_FIELD
    terms = set()
    # A kind has a handful of fields to select by; only attackers ask about hundreds.
    if text.count("=") > MAX_TERMS:
        raise status.bad_request(f"invalid field selector: it has more than {MAX_TERMS} terms")
    for part in _TERM.findall(text):
        operator = _OPERATOR.search(part)
        if operator is None:
            raise status.bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        value = _ESCAPED.sub(_unescape, part[operator.end() :])
        terms.add(FieldTerm(part[: operator.start()], value, operator[0] != "!="))
    return FieldSelector(tuple(sorted(terms, key=lambda term: (term.field, term.value, term.equal))))


def _unescape(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped is None:
        raise status.bad_request(f"invalid field selector: unescaped character in value: {match[0]}")
    if escaped not in {"\\", ",", "="}:
        raise status.bad_request(f"invalid field selector: invalid escape sequence: {match[0]}")
    return escaped
