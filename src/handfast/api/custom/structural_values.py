# SPDX-License-Identifier: Apache-2.0
"""Decide whether a custom object's values are what its structural schema asks for; everything wrong, in Kubernetes' words.

The document was pruned and defaulted before (`structural`); nothing is changed here. Patterns come from users: they are
matched by RE2, whose time is linear, and the whole check has a budget of steps. Not here: the CEL rules of
`x-kubernetes-validations` (`rule_values`), and formats that `structural_formats` does not know.

1. null only where `nullable`; the type; `enum`.
2. texts: `minLength`, `maxLength` (in characters), `pattern`, `format`.
3. numbers: `minimum`, `maximum`, their exclusive forms, `multipleOf`, `format`.
4. arrays: `minItems`, `maxItems`, no element twice in a set, no key twice in a map; then each element.
5. objects: `required`, `minProperties`, `maxProperties`; then each field; an embedded object has apiVersion and kind.
6. `allOf`, `anyOf`, `oneOf`, `not`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import re2

from handfast.api import field_errors as fields
from handfast.api import status
from handfast.api.custom import structural, structural_formats
from handfast.api.custom.structural import Schema
from handfast.api.field_path import Path
from handfast.api.schema import structs

# Values times the schemas that look at each: far above what an object of the largest size needs, a second or so.
MAX_STEPS: Final = 300_000
# Writing down a cause takes about as long as looking at so many values. Alternatives write many that nobody sees.
_CAUSE_STEPS: Final = 10
# A refusal should not outgrow the request: so many causes, and so much of each value.
MAX_CAUSES: Final = 100
_SHOWN: Final = 256
_JUNCTORS: Final = frozenset({"allOf", "anyOf", "oneOf", "not"})
# A schema that says no more than this asks nothing of a value but its type.
_BARE: Final = frozenset({"type", "description"})
# What may be asked of a text beside what `_text` looks at.
_MORE: Final = _JUNCTORS | {"enum", "required", structural.INT_OR_STRING}
_canonical = msgspec.json.Encoder(order="deterministic").encode


class _TooMuch(Exception):
    """The budget of steps is spent."""


class Budget:
    """How many steps may still be taken; several checks of one request can share it."""

    __slots__ = ("_left",)

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self._left = steps

    def spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise _TooMuch


@functools.lru_cache(maxsize=1024)
def pattern(expression: str) -> Any:
    """The compiled pattern, or None if RE2 does not take it."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except (re2.error, UnicodeEncodeError):
        return None


def check(schema: Schema, document: Any, budget: Budget | None = None) -> list[status.Cause]:
    """Everything wrong with a document, at most `MAX_CAUSES`."""
    checker = _Checker(budget or Budget())
    try:
        checker.value(schema, document, None)
    except _TooMuch:
        detail = f"too much to check: the schema and the object together take more than {MAX_STEPS} steps"
        return [status.Cause("FieldValueForbidden", f"Forbidden: {detail}")]
    return checker.causes


def type_name(value: Any) -> str:
    """The JSON type of a value; a number without a fraction is an integer."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "array"
    return "integer" if isinstance(value, int) or value.is_integer() else "number"


def _types(schema: Schema) -> tuple[str, ...]:
    """The types a schema allows; none named: any."""
    if schema.get(structural.INT_OR_STRING) is True:
        return ("integer", "string")
    found = schema.get("type")
    if not isinstance(found, str) or not found:
        return ()
    return ("number", "integer") if found == "number" else (found,)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _schemas(schema: Schema, key: str) -> list[Schema]:
    found = schema.get(key)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def _brief(value: Any) -> Any:
    if isinstance(value, dict | list):
        return type_name(value)
    return value[:_SHOWN] + "…" if isinstance(value, str) and len(value) > _SHOWN else value


def _plain(number: Any) -> str:
    """A limit as Go prints it: 5 and not 5.0."""
    return str(int(number)) if isinstance(number, float) and number.is_integer() else str(number)


class _Checker:
    """Walks a document beside its schema and writes down what is wrong."""

    def __init__(self, budget: Budget) -> None:
        self.causes: list[status.Cause] = []
        self._budget = budget

    def value(self, schema: Schema, value: Any, path: Path | None) -> None:
        # Most values are texts of which little is asked: 0.6 µs, and 1.5 by the way of all others.
        if type(value) is str and schema.get("type") == "string" and _MORE.isdisjoint(schema):
            self._budget.spend(1)
            self._text(schema, value, path)
            return
        # Every alternative of an enum and every required key is a step too.
        self._budget.spend(1 + len(schema.get("enum") or ()) + len(schema.get("required") or ()))
        # 1. null only where nullable; the type; enum
        if value is None and schema.get("nullable") is True:
            return
        wanted, actual = _types(schema), type_name(value)
        if wanted and actual not in wanted:
            self._wrong_type(path, ",".join(wanted[:1] if wanted[0] == "number" else wanted), actual)
            return
        self._enum(schema, value, path)
        if isinstance(value, str):
            self._text(schema, value, path)
        elif _is_number(value):
            self._number(schema, value, path)
        elif isinstance(value, list):
            self._array(schema, value, path)
        elif isinstance(value, dict):
            self._object(schema, value, path)
        self._junctors(schema, value, path)

    def _report(self, cause: status.Cause) -> None:
        self._budget.spend(_CAUSE_STEPS)
        if len(self.causes) < MAX_CAUSES:
            self.causes.append(cause)

    def _invalid(self, path: Path | None, value: Any, detail: str) -> None:
        place = _text(path)
        self._report(fields.invalid(place, _brief(value), f"{place} in body {detail}"))

    def _wrong_type(self, path: Path | None, wanted: str, actual: str) -> None:
        place = _text(path)
        message = f'Invalid value: "{actual}": {place} in body must be of type {wanted}: "{actual}"'
        self._report(status.Cause("FieldValueTypeInvalid", message, place))

    def _enum(self, schema: Schema, value: Any, path: Path | None) -> None:
        allowed = schema.get("enum")
        # Compared as JSON, because to Python 1 equals True.
        if isinstance(allowed, list) and _canonical(value) not in map(_canonical, allowed):
            self._report(fields.not_supported(_text(path), _brief(value), allowed))

    def _text(self, schema: Schema, value: str, path: Path | None) -> None:
        # 2. texts: length, pattern, format
        least, most = schema.get("minLength"), schema.get("maxLength")
        if most is not None and len(value) > most:
            self._report(status.Cause("FieldValueTooLong", f"Too long: may not be more than {most} bytes", _text(path)))
        if least is not None and len(value) < least:
            self._invalid(path, value, f"should be at least {least} chars long")
        expression = schema.get("pattern")
        if expression and not _matches(expression, value):
            self._invalid(path, value, f"should match '{expression}'")
        self._format(schema, value, path)

    def _format(self, schema: Schema, value: Any, path: Path | None) -> None:
        wanted = schema.get("format")
        if wanted and not structural_formats.holds(wanted, value):
            self._invalid(path, value, f"must be of type {wanted}: {_quoted(value)}")

    def _number(self, schema: Schema, value: Any, path: Path | None) -> None:
        # 3. numbers: bounds, multiples, format
        least, most, factor = (schema.get(key) for key in ("minimum", "maximum", "multipleOf"))
        if least is not None:
            exclusive = schema.get("exclusiveMinimum") is True
            if value < least or (exclusive and value == least):
                words = "greater than" if exclusive else "greater than or equal to"
                self._invalid(path, value, f"should be {words} {_plain(least)}")
        if most is not None:
            exclusive = schema.get("exclusiveMaximum") is True
            if value > most or (exclusive and value == most):
                words = "less than" if exclusive else "less than or equal to"
                self._invalid(path, value, f"should be {words} {_plain(most)}")
        if factor is not None and not is_multiple(value, factor):
            self._invalid(path, value, f"should be a multiple of {_plain(factor)}")
        self._format(schema, value, path)

    def _array(self, schema: Schema, value: list[Any], path: Path | None) -> None:
        # 4. arrays: how many, none twice, then each element
        least, most = schema.get("minItems"), schema.get("maxItems")
        if most is not None and len(value) > most:
            self._report(fields.too_many(_text(path), len(value), most))
            return
        if least is not None and len(value) < least:
            self._invalid(path, len(value), f"should have at least {least} items")
        below = structural.items(schema)
        self._unique(schema, value, path)
        if below is not None and _are_texts(below, value):
            self._budget.spend(len(value))
            return
        for index, element in enumerate(value if below is not None else ()):
            self.value(below or {}, element, Path(index, path))

    def _unique(self, schema: Schema, value: list[Any], path: Path | None) -> None:
        list_type, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or ()
        if list_type not in {"set", "map"}:
            return
        seen = set()
        for index, element in enumerate(value):
            known: Any = element
            if list_type == "map":
                known = {key: element[key] for key in keys if key in element} if isinstance(element, dict) else None
            text = _canonical(known)
            if text in seen and known is not None:
                shown = _brief(known) if list_type == "set" else known
                self._report(fields.duplicate(_text(Path(index, path)), shown))
            seen.add(text)

    def _object(self, schema: Schema, value: dict[str, Any], path: Path | None) -> None:
        # 5. objects: which and how many fields, then each field
        least, most = schema.get("minProperties"), schema.get("maxProperties")
        if most is not None and len(value) > most:
            self._report(fields.too_many(_text(path), len(value), most))
            return
        if least is not None and len(value) < least:
            self._invalid(path, len(value), f"should have at least {least} properties")
        for key in schema.get("required") or ():
            if key not in value:
                self._report(fields.required(_text(Path(key, path))))
        if path is not None and schema.get(structural.EMBEDDED) is True:
            self._embedded(value, path)
        declared, rest = structural.fields(schema)
        for key, child in value.items():
            below = declared.get(key, rest)
            if isinstance(below, dict) or isinstance(below, Mapping):  # noqa: SIM101 - a dict is found ten times faster
                self.value(below, child, Path(key, path))

    def _embedded(self, value: dict[str, Any], path: Path) -> None:
        for key in ("apiVersion", "kind"):
            if not isinstance(value.get(key), str) or not value[key]:
                self._report(fields.required(_text(Path(key, path)), "must not be empty"))
        wrong = structs.check(structural.OBJECT_META, value.get("metadata") or {}).type_error
        if wrong is not None:
            self._report(fields.invalid(_text(Path("metadata", path)), "object", wrong))

    def _junctors(self, schema: Schema, value: Any, path: Path | None) -> None:
        # 6. allOf, anyOf, oneOf, not
        if _JUNCTORS.isdisjoint(schema):
            return
        for below in _schemas(schema, "allOf"):
            self.value(below, value, path)
        for key in ("anyOf", "oneOf"):
            alternatives = [self._trial(below, value, path) for below in _schemas(schema, key)]
            valid = sum(not causes for causes in alternatives)
            if not alternatives or valid == 1 or (key == "anyOf" and valid):
                continue
            wanted = _wanted(schema, key)
            if not valid and not wanted:
                for cause in min(alternatives, key=len):
                    self._report(cause)
            words = "must validate at least one schema (anyOf)"
            if key == "oneOf":
                count = f"{valid} valid alternatives" if valid else "none valid"
                words = f"must validate one and only one schema (oneOf). Found {count}"
            self._report(fields.invalid(_text(path), "", f'"{_text(path)}" {words}{wanted}'))
        forbidden = schema.get("not")
        if isinstance(forbidden, Mapping) and not self._trial(forbidden, value, path):
            self._report(fields.invalid(_text(path), "", f'"{_text(path)}" must not validate the schema (not)'))

    def _trial(self, schema: Schema, value: Any, path: Path | None) -> list[status.Cause]:
        """What would be wrong under a schema that need not hold."""
        kept, self.causes = self.causes, []
        self.value(schema, value, path)
        causes, self.causes = self.causes, kept
        return causes


def _are_texts(schema: Schema, elements: list[Any]) -> bool:
    """Whether the schema wants texts and no more, and all are: long lists are most often such lists."""
    return schema.get("type") == "string" and schema.keys() <= _BARE and all(isinstance(text, str) for text in elements)


def _wanted(schema: Schema, key: str) -> str:
    """The fields to choose from, if each alternative wants one and no more. That says more than the first alternative alone."""
    names: list[str] = []
    for below in _schemas(schema, key):
        if set(below) != {"required"} or len(below["required"]) != 1:
            return ""
        names += below["required"]
    return f": one of {', '.join(names)} is required"


def _matches(expression: str, value: str) -> bool:
    """Whether a text matches. Nothing matches a pattern that RE2 does not take, and a text that is no Unicode matches nothing."""
    return (_known if len(value) <= _SHOWN else _search)(expression, value)


def _search(expression: str, value: str) -> bool:
    compiled = pattern(expression)
    try:
        return compiled is not None and compiled.search(value) is not None
    except UnicodeEncodeError:
        return False


# RE2 releases the interpreter's lock. Beside a busy thread, getting it back costs more than any match of a short text. An
# object that is written again and again, such as a segment of the ledger, has most of its texts unchanged.
_known = functools.lru_cache(maxsize=1024)(_search)


def is_multiple(value: float, factor: float) -> bool:
    """Exactly for integers; for fractions as near as floats come (0.3 is a multiple of 0.1)."""
    if factor <= 0:
        return False
    if isinstance(value, int) and isinstance(factor, int):
        return value % factor == 0
    try:
        ratio = value / factor
        return abs(ratio - round(ratio)) <= 1e-9 * max(1.0, abs(ratio))
    except OverflowError:
        return False


def _quoted(value: Any) -> str:
    """A value in quotes, as messages about formats show it."""
    return f'"{_brief(value)}"'


def _text(path: Path | None) -> str:
    return "" if path is None else str(path)
