# SPDX-License-Identifier: Apache-2.0
"""Secrets that are meant to hold bootstrap tokens, as whoever may write Secrets makes them: JSON behind a first byte that says nothing.

1. A Secret has a fault, or is read; no sentence about it quotes its secret half.
2. Whoever presents another token is never let in.
"""

from __future__ import annotations

import dataclasses
import datetime

import msgspec

from handfast.api import kinds
from handfast.apiserver import bodies
from handfast.bootstrap import token_secrets, token_verdict, token_views, tokens
from tests.fuzz import promises

NOW = datetime.datetime(2026, 1, 2, 4, tzinfo=datetime.UTC)
_SECRETS = kinds.row("secrets")
_OTHER = "abcdef.zzzzzzzzzzzzzzzz"


def _read(data: bytes) -> None:
    document, _ = bodies.for_kind(data[1:], "application/json", _SECRETS, bodies.IGNORE)
    fault = token_secrets.fault(document)
    secret, _ = tokens.look(document)
    # 1. nothing quotes the secret half, unless it stands elsewhere in the Secret, too
    half = secret.token.secret
    is_known = len(half) < 16 or half in repr(dataclasses.replace(secret, token=tokens.Token(secret.token.id, "")))
    promises.require(is_known or half not in repr(secret), "a secret half is printed")
    promises.require(is_known or fault is None or half not in fault.sentence, "a secret half is told")
    view = token_views.view(document)
    token_views.table([view], NOW, wide=True)
    msgspec.json.encode(token_views.document(view))
    tokens.expired(secret.expiration, NOW)
    _judge(document)


def _judge(document: dict[str, object]) -> None:
    # 2. never let in by another token
    verdict = token_verdict.verdict(document, tokens.parse(_OTHER), NOW)
    promises.require(isinstance(verdict, token_verdict.Rejected), "another token was let in")


run = promises.refusing(_read)
