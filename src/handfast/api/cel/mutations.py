# SPDX-License-Identifier: Apache-2.0
"""Expressions that make objects, of mutating policies: `Object{...}`, `Object.spec{...}` and `JSONPatch{...}`.

The evaluator has no types of ours. So the text is changed before it is compiled, and the value is looked at when it is there:

1. `Object.spec{replicas: 1}` becomes a map that says what it is: `{"\\u0000": "Object.spec", "replicas": 1}`. Texts and comments are
   left alone. What is made from it is compiled, judged and bounded like every other expression.
2. A name that CEL would not take is written escaped, as in rules of custom resources: `a__dash__b` is `a-b`.
3. An apply configuration is an `Object`. Where something in it says what it is, that is its own place: an `Object.spec.template`
   stands at `spec.template`, alone or in a list. This is what Kubernetes looks at, at the same moment.
4. A JSON patch is a list of `JSONPatch`, which have `op`, `path`, `from` and `value`.
5. Nothing is left of the marks, and nothing but JSON is left: a time or bytes have to be made a text by the expression.

What is done with them is for `rules.policies`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final

from handfast.api.cel import engine, estimate

OBJECT, PATCH = "Object", "JSONPatch"
_MARK: Final = "\0"
_MEMBERS: Final = frozenset({"op", "path", "from", "value"})
_QUOTES: Final = frozenset("'\"")
_OPEN, _CLOSE = frozenset("({["), frozenset(")}]")
_BEGINS: Final = frozenset({"{", ",", "{?", ",?"})
_TOKEN: Final = re.compile(
    r"""
      (?P<space>\s+|//[^\n]*)
    | (?P<text>[bB]?[rR][bB]?(?:'''[\s\S]*?'''|\"\"\"[\s\S]*?\"\"\"|'(?!'')[^'\n]*'|"(?!"")[^"\n]*")
        | [bB]?(?:'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"|'(?!'')(?:\\.|[^'\\\n])*'|"(?!"")(?:\\.|[^"\\\n])*"))
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*|`[^`\n]*`)
    | (?P<number>[0-9][A-Za-z0-9_]*)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPED: Final = re.compile(r"__(underscores|dot|dash|slash)__")
_MEANT: Final = {"underscores": "__", "dot": ".", "dash": "-", "slash": "/"}
_WORD: Final = re.compile(
    r"__(true|false|null|in|as|break|const|continue|else|for|function|if|import|let|loop|package|namespace|return)__\Z"
)


def plain(text: str) -> str:
    """The expression with maps in place of objects (1); raises `estimate.InvalidExpression`."""
    if OBJECT not in text and PATCH not in text:
        return text
    if len(text) > engine.MAX_TEXT:
        raise estimate.InvalidExpression(engine.TOO_LONG)
    return "".join(_written(list(_tokens(text))))


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(text):
        if match.lastgroup == "other" and match[0] in _QUOTES:
            # Here and no later: looking for the end of each once more would take the square of the time.
            raise estimate.InvalidExpression(f"Syntax error: the text at character {match.start() + 1} has no end")
        yield match.lastgroup or "", match[0]


def _written(tokens: list[tuple[str, str]]) -> Iterator[str]:
    # Of every bracket that is open: the type that is made there, or nothing.
    opened: list[str] = []
    before, index = "", 0
    while index < len(tokens):
        kind, text = tokens[index]
        if kind == "name" and before != "." and (made := _made(tokens, index)) is not None:
            name, index, is_empty = made
            opened.append(name)
            yield f'{{"\\u0000": "{name}"{"" if is_empty else ", "}'
            before = "{"
            continue
        if kind == "name" and opened and opened[-1] and before in _BEGINS and _next(tokens, index + 1) == ":":
            text = f'"{_member(opened[-1], text)}"'
        elif kind == "other" and text in _OPEN:
            opened.append("")
        elif kind == "other" and text in _CLOSE and opened:
            opened.pop()
        yield text
        if kind != "space":
            # An optional member, not the question of a condition.
            before = before + text if text == "?" and before in _BEGINS else text
        index += 1


def _made(tokens: list[tuple[str, str]], index: int) -> tuple[str, int, bool] | None:
    """The type that begins here, where its members begin, and whether there are none; None if no type does."""
    if tokens[index][1] not in {OBJECT, PATCH}:
        return None
    names, place = [tokens[index][1]], index + 1
    while names[0] == OBJECT and _next(tokens, place) == ".":
        place = _after(tokens, place)
        if _kind(tokens, place) != "name":
            return None
        names.append(_meant(_next(tokens, place)))
        place = _after(tokens, place)
    if _next(tokens, place) != "{":
        return None
    place = _after(tokens, place)
    return ".".join(names), place, _next(tokens, place) == "}"


def _skipped(tokens: list[tuple[str, str]], index: int) -> int:
    while index < len(tokens) and tokens[index][0] == "space":
        index += 1
    return index


def _next(tokens: list[tuple[str, str]], index: int) -> str:
    index = _skipped(tokens, index)
    return tokens[index][1] if index < len(tokens) else ""


def _kind(tokens: list[tuple[str, str]], index: int) -> str:
    index = _skipped(tokens, index)
    return tokens[index][0] if index < len(tokens) else ""


def _after(tokens: list[tuple[str, str]], index: int) -> int:
    return _skipped(tokens, index) + 1


def _meant(name: str) -> str:
    # 2. a name that CEL would not take
    if name.startswith("`"):
        return re.sub(r'["\\]', "", name[1:-1])
    word = _WORD.match(name)
    return word[1] if word is not None else _ESCAPED.sub(lambda match: _MEANT[match[1]], name)


def _member(holder: str, name: str) -> str:
    member = _meant(name)
    if holder == PATCH and member not in _MEMBERS:  # 4. these and no others
        raise estimate.InvalidExpression(f"undefined field '{member}' of {PATCH}")
    return member


def configuration(value: Any) -> dict[str, Any]:
    """An apply configuration (3); raises `engine.NotEvaluated`."""
    if not isinstance(value, dict) or value.get(_MARK) != OBJECT:
        raise engine.NotEvaluated(f"must evaluate to {OBJECT}")
    made: dict[str, Any] = _json(value, OBJECT)
    return made


def operations(value: Any) -> list[dict[str, Any]]:
    """The operations of a JSON patch (4); raises `engine.NotEvaluated`."""
    if not isinstance(value, list) or any(not isinstance(row, dict) or row.get(_MARK) != PATCH for row in value):
        raise engine.NotEvaluated(f"must evaluate to a list of {PATCH}")
    return [{key: _json(part, "") for key, part in row.items() if key != _MARK} for row in value]


def _json(value: Any, place: str) -> Any:
    if isinstance(value, dict):
        made = value.get(_MARK)
        if made is not None and place and made != place:  # 3. its own place
            raise engine.NotEvaluated(
                f'type mismatch: unexpected type name "{made}", expected "{place}", which matches field name path from root '
                "Object type"
            )
        if any(not isinstance(key, str) for key in value):
            raise engine.NotEvaluated("a map of an object has keys that are no texts")
        below = place if made is None else f"{made}."
        return {key: _json(part, below if made is None else below + key) for key, part in value.items() if key != _MARK}
    if isinstance(value, list):
        return [_json(part, place) for part in value]
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    # 5. nothing but JSON
    raise engine.NotEvaluated(f"a value of the type {type(value).__name__} cannot be part of an object: make it a text")
