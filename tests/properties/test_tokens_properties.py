# SPDX-License-Identifier: Apache-2.0
"""Properties of bootstrap tokens: reading undoes writing, and whatever is given is judged, never a crash."""

from __future__ import annotations

import base64
import datetime
import re
import string
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from handfast import errors
from handfast.bootstrap import token_verdict, tokens

NOW = datetime.datetime(2026, 11, 15, 12, 0, 0, tzinfo=datetime.UTC)
LETTERS = string.ascii_lowercase + string.digits

good_tokens = st.builds(
    tokens.Token, st.text(LETTERS, min_size=6, max_size=6), st.text(LETTERS, min_size=16, max_size=16)
)
groups = st.from_regex(r"system:bootstrappers:[a-z0-9:-]{0,20}[a-z0-9]", fullmatch=True)
instants = st.datetimes(timezones=st.just(datetime.UTC)).map(lambda at: at.replace(microsecond=0))
near_tokens = st.from_regex(r"[0-9a-zA-Z`{/:]{5,7}[.:][0-9a-z\n٣]{15,17}", fullmatch=True)

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.binary(max_size=9).map(base64.b64encode),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
KEYS = [
    tokens.KEY_ID,
    tokens.KEY_SECRET,
    tokens.KEY_EXPIRATION,
    tokens.KEY_GROUPS,
    tokens.KEY_GROUPS_OLD,
    tokens.KEY_DESCRIPTION,
    "usage-bootstrap-authentication",
]
encoded = st.binary(max_size=30).map(lambda octets: base64.b64encode(octets).decode())


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=30) | near_tokens | good_tokens.map(lambda token: token.text))
def test_the_grammar_is_that_of_the_pattern(text: str) -> None:
    wanted = re.fullmatch(r"[a-z0-9]{6}\.[a-z0-9]{16}", text, re.ASCII) is not None
    assert tokens.is_well_formed(text) is wanted
    try:
        assert tokens.parse(text).text == text
    except errors.Refused as refused:
        assert not wanted
        shown = re.findall(r'^the bootstrap token "(?:([a-z0-9]{6})\.)?<hidden>" is not well formed', refused.message)
        assert shown in ([""], [text[:6]])


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=22, max_size=200))
def test_what_is_generated_is_a_token(octets: bytes) -> None:
    stream = iter(octets + bytes(200))
    token = tokens.generate(lambda count: bytes(next(stream) for _ in range(count)))
    assert tokens.parse(token.text) == token


@settings(max_examples=100, deadline=None)
@given(
    good_tokens,
    st.none() | instants,
    st.lists(st.sampled_from(tokens.USAGES), unique=True),
    st.lists(groups, max_size=3),
    st.text(st.characters(codec="utf-8"), max_size=20),
)
def test_reading_undoes_writing(
    token: tokens.Token,
    expiration: datetime.datetime | None,
    usages: list[str],
    extra: list[str],
    description: str,
) -> None:
    document = tokens.secret_document(
        token, expiration=expiration, usages=usages, groups=extra, description=description
    )
    found = tokens.read(document)
    tokens.require_consistent(found)
    assert found.token == token
    assert tokens.parse_expiration(found.expiration) == expiration
    assert found.usages == tuple(sorted(usages))
    assert tokens.parse_groups(found.extra_groups, found.old_groups) == tuple(sorted({tokens.DEFAULT_GROUP, *extra}))
    assert found.description == description
    assert token.secret not in repr(found).replace(repr(description), "")
    verdict = token_verdict.verdict(document, token, NOW)
    good = "authentication" in usages and (expiration is None or expiration > NOW)
    assert isinstance(verdict, token_verdict.Accepted) is good


@settings(max_examples=200, deadline=None)
@given(good_tokens, good_tokens)
def test_only_the_same_secret_is_accepted(stored: tokens.Token, other: tokens.Token) -> None:
    document = tokens.secret_document(stored, usages=["authentication"])
    for presented in (tokens.Token(stored.id, other.secret), tokens.Token(other.id, stored.secret), stored):
        verdict = token_verdict.verdict(document, presented, NOW)
        assert isinstance(verdict, token_verdict.Accepted) is (presented.text == stored.text)


@settings(max_examples=200, deadline=None)
@given(
    anything
    | st.fixed_dictionaries(
        {"metadata": anything | st.just({}), "type": st.just(tokens.SECRET_TYPE) | anything},
        optional={"data": anything | st.dictionaries(st.sampled_from(KEYS), encoded | anything)},
    ),
    good_tokens,
)
def test_whatever_stands_there_is_judged(document: Any, token: tokens.Token) -> None:
    verdict = token_verdict.verdict(document, token, NOW)
    assert isinstance(verdict, token_verdict.Rejected)
    assert verdict.check > 2
    assert token.secret not in verdict.sentence


@settings(max_examples=200, deadline=None)
@given(st.datetimes(timezones=st.just(datetime.UTC)), st.integers(-1439, 1439))
def test_an_instant_is_the_same_in_every_zone(at: datetime.datetime, minutes: int) -> None:
    zone = datetime.timezone(datetime.timedelta(minutes=minutes))
    try:
        text = at.astimezone(zone).isoformat()
    except OverflowError:
        text = at.isoformat()
    assert tokens.parse_expiration(text) == at


@settings(max_examples=200, deadline=None)
@given(
    st.text(max_size=30)
    | st.from_regex(
        r"[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9](Z|[+-][0-2][0-9]:[0-6][0-9])?", fullmatch=True
    )
)
def test_an_expiration_is_read_or_has_expired(text: str) -> None:
    try:
        until = tokens.parse_expiration(text)
    except errors.Refused:
        assert tokens.expired(text, NOW)
    else:
        assert tokens.expired(text, NOW) is (until is not None and until <= NOW)
