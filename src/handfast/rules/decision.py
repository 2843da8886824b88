# SPDX-License-Identifier: Apache-2.0
"""Verdicts: yes, no or no opinion, each with its reason. They have no truth value, so none can be taken for a boolean.

This file holds only the values; each rule that gives them is a module of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn


@dataclass(frozen=True, slots=True)
class _Verdict:
    """`reason` is a stable word for metrics and clients; `sentence` says it to a person; `rule` names who said it."""

    reason: str
    sentence: str
    rule: str

    def __bool__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} has no truth value: match on its type")


class Approve(_Verdict):
    """Yes."""

    __slots__ = ()


class Deny(_Verdict):
    """No, and nobody asked later can change it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Missing(Deny):
    """No, because what the write is about is not there: the caller is told so, as Kubernetes does."""

    kind: str
    name: str


class NotMine(_Verdict):
    """No opinion: ask the next rule."""

    __slots__ = ()


Decision = Approve | Deny | NotMine
