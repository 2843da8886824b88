# SPDX-License-Identifier: Apache-2.0
"""Bootstrap tokens: grammar and Secret. The names of the table in `bootstrap/tokens.py` are here."""

from __future__ import annotations

import base64
import datetime
import hmac
import itertools
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from handfast import errors
from handfast.bootstrap import tokens

NOW = datetime.datetime(2026, 11, 15, 12, 0, 0, tzinfo=datetime.UTC)
TOKEN = tokens.Token("foobar", "circumnavigation")
GROUP = "system:bootstrappers:"


def encoded(value: str | bytes) -> str:
    return base64.b64encode(value.encode() if isinstance(value, str) else value).decode()


def document(change: Callable[[dict[str, Any]], object] | None = None, **data: str | bytes | None) -> dict[str, Any]:
    """The Secret of TOKEN, with data keys (`_` for `-`) replaced or, where None, left out; then changed."""
    made = tokens.secret_document(TOKEN, usages=["authentication"])
    for name, value in data.items():
        key = name.replace("_", "-")
        made["data"].pop(key, None)
        if value is not None:
            made["data"][key] = encoded(value)
    if change is not None:
        change(made)
    return made


def refusal(call: Callable[[], object]) -> errors.Refused:
    with pytest.raises(errors.Refused) as caught:
        call()
    return caught.value


# --- the token -------------------------------------------------------------------------------------------------------

NOT_TOKENS = {
    "empty": "",
    "only a dot": ".",
    "no dot": "1234567890123456789012",
    "short id": "12345.1234567890123456",
    "no id": ".1234567890123456",
    "no secret": "123456.",
    "colon and a dot": "123456:1234567890.123456",
    "colon": "abcdef:1234567890123456",
    "upper-case id": "Abcdef.1234567890123456",
    "upper-case secret": "123456.AABBCCDDEEFFGGHH",
    "dash in the secret": "123456.AABBCCD-EEFFGGHH",
    "star in the id": "abc*ef.1234567890123456",
    "trailing newline": "abcdef.1234567890123456\n",
    "newline for the last letter": "abcdef.123456789012345\n",
    "leading space": " abcdef.1234567890123456",
    "NUL inside": "abcdef.12345678901234\x0056",
    "Arabic digits": "abcdef.١٢٣٤٥٦٧٨٩٠١٢٣٤٥٦",
    "full-width digits in the id": "１２３４５６.1234567890123456",
    "letter with accent": "abcdéf.1234567890123456",
    "long s": "abcdef.123456789012345ſ",
    "beyond the first plane": "abcdef.123456789012345𝟗",
    "lone surrogate": "abcdef.123456789012345\ud800",
    "three dots": "abcdef.12345.78901.3456",
    "dot in the id": "abc.ef.1234567890123456",
    "long secret": "abcdef.12345678901234567",
    "short secret": "abcdef.123456789012345",
    "long id": "abcdefg.123456789012345",
    "a megabyte": "a" * (1 << 20),
    "a megabyte of secret": "abcdef." + "a" * (1 << 20),
    "before the digits": "abcdef.123456789012345/",
    "after the digits": "abcdef.123456789012345:",
    "before the letters": "abcdef.123456789012345`",
    "after the letters": "abcdef.123456789012345{",
}


@pytest.mark.parametrize("text", NOT_TOKENS.values(), ids=NOT_TOKENS)
def test_another_text_is_no_token(text: str) -> None:
    assert not tokens.is_well_formed(text)
    assert tokens.presented(text) is None
    refused = refusal(lambda: tokens.parse(text))
    assert refused.reason == "BadBootstrapToken"
    assert refused.message.startswith("the bootstrap token ")
    assert refused.message.endswith("is not well formed")
    assert len(refused.message) < 200


@pytest.mark.parametrize(
    "text", ["abcdef.1234567890123456", "123456.aabbccddeeffgghh", "000000.zzzzzzzzzzzzzzzz", "012345.0123e56789012345"]
)
def test_a_token_is_read(text: str) -> None:
    token = tokens.parse(text)
    assert (token.id, token.secret) == (text[:6], text[7:])
    assert token.text == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("abcdef.UPPERSECRET", '"abcdef.<hidden>"'),
        ("abcdef.", '"abcdef.<hidden>"'),
        ("Abcdef.topsecrettopsecr", '"<hidden>"'),
        ("topsecrettopsecr.abcdef", '"<hidden>"'),
        ("secret", '"<hidden>"'),
        ("secret\n.1", '"<hidden>"'),
        ("s.ecretsecretsecret", '"<hidden>"'),
    ],
)
def test_the_refusal_shows_at_most_the_id(text: str, shown: str) -> None:
    message = refusal(lambda: tokens.parse(text)).message
    assert message.partition(" is not")[0] == f"the bootstrap token {shown}"


def test_a_description_is_bounded() -> None:
    tokens.secret_document(TOKEN, description="x" * tokens.MAX_DESCRIPTION)
    refused = refusal(lambda: tokens.secret_document(TOKEN, description="x" * (tokens.MAX_DESCRIPTION + 1)))
    assert refused.reason == "BadBootstrapDescription"
    assert refused.message == "the description has 257 characters; at most 256 are allowed"


def test_no_error_shows_a_secret() -> None:
    secret = TOKEN.secret
    calls: list[Callable[[], object]] = [
        lambda: tokens.parse(f"foobar.{secret}x"),
        lambda: tokens.parse(f"foobar:{secret}"),
        lambda: tokens.parse(secret),
        lambda: tokens.secret_document(tokens.Token("foobar", secret.upper())),
        lambda: tokens.read(document(lambda made: made["data"].update({"token-secret": secret + "!"}))),
        lambda: tokens.require_consistent(tokens.TokenSecret(name="bootstrap-token-other1", token=TOKEN)),
        lambda: tokens.require_consistent(tokens.TokenSecret(name="", token=tokens.Token("", secret))),
    ]
    for call in calls:
        refused = refusal(call)
        told = "".join([*traceback.format_exception(refused, limit=0), refused.message, refused.hint or ""])
        assert secret not in told.lower()


def test_no_repr_shows_a_secret() -> None:
    found = tokens.read(document())
    for value in (TOKEN, found):
        for shown in (repr(value), str(value), f"{value}"):
            assert TOKEN.secret not in shown
    assert repr(TOKEN) == "Token(id='foobar')"


def test_halves_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def recorded(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return False

    monkeypatch.setattr(hmac, "compare_digest", recorded)
    assert tokens.Token("foobar", "circumnavigation") != tokens.Token("foobar", "circumnavigatioX")
    assert compared == [(b"circumnavigation", b"circumnavigatioX")]


def test_tokens_are_equal_by_both_halves() -> None:
    assert tokens.Token("foobar", "circumnavigation") == TOKEN
    assert hash(TOKEN) == hash(tokens.Token("foobar", "circumnavigation"))
    assert tokens.Token("foobar", "circumnavigatioN") != TOKEN
    assert tokens.Token("foobaz", "circumnavigation") != TOKEN
    assert TOKEN != "foobar.circumnavigation"


# --- names, groups, usages -------------------------------------------------------------------------------------------


def test_a_secret_name_is_read() -> None:
    assert tokens.parse_secret_name("bootstrap-token-abc123") == "abc123"
    assert tokens.secret_name("abc123") == "bootstrap-token-abc123"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "bootstrap-token-",
        "bootstrap-token-abc",
        "bootstrap-token-abc1234",
        "bootstrap-token-ABC123",
        "bootstrap-token-abc123\n",
        "bootstrap-token-١٢٣٤٥٦",
        "abc123",
        "token-abc123",
        "xbootstrap-token-abc123",
        "bootstrap-token-bootstrap-token-abc123",
    ],
)
def test_another_secret_name_is_refused(name: str) -> None:
    refused = refusal(lambda: tokens.parse_secret_name(name))
    assert refused.reason == "BadBootstrapSecretName"
    assert refused.message.endswith("is not bootstrap-token- and six lower-case letters or digits")


@pytest.mark.parametrize(
    "group",
    ["foo", "foo:bar:baz", "foo-bar-42", "0", ":a", "-a", "a" * 256, "a" * 255 + "0"],
    ids=lambda group: group[:20],
)
def test_group_is_good(group: str) -> None:
    tokens.validate_group(GROUP + group)
    assert tokens.parse_groups(GROUP + group) == ("system:bootstrappers", GROUP + group)


BAD_GROUPS = {
    "upper case": GROUP + "Foo",
    "no prefix": "foo",
    "nothing after the prefix": GROUP,
    "a space": GROUP + " ",
    "a star": GROUP + "*",
    "ends in a colon": GROUP + "foo:",
    "ends in a dash": GROUP + "foo-",
    "a script": GROUP + "<script> alert(/xss/)</script>",
    "300 letters": GROUP + "a" * 300,
    "257 letters": GROUP + "a" * 257,
    "trailing newline": GROUP + "foo\n",
    "leading space": " " + GROUP + "foo",
    "Arabic digit": GROUP + "foo١",
    "the default group": "system:bootstrappers",
    "administrators": "system:masters",
    "administrators inside": GROUP + "a\nsystem:masters",
    "nodes": "system:nodes",
    "empty": "",
}


@pytest.mark.parametrize("group", BAD_GROUPS.values(), ids=BAD_GROUPS)
def test_group_is_refused(group: str) -> None:
    refused = refusal(lambda: tokens.validate_group(group))
    assert refused.reason == "BadBootstrapGroup"
    assert refused.message.startswith('bootstrap group "')
    assert refused.message.endswith(f"is invalid: it must be {tokens.GROUP_FORM}")


def test_the_text_for_a_bad_group() -> None:
    assert refusal(lambda: tokens.validate_group("foo")).message == (
        'bootstrap group "foo" is invalid: it must be system:bootstrappers: and 1 to 256 characters, which are lower-case '
        "letters, digits, : or -, the last a letter or digit"
    )
    assert r"\n" in refusal(lambda: tokens.validate_group("a\nb")).message
    assert len(refusal(lambda: tokens.validate_group("a" * (1 << 20))).message) < 700


GROUPS: dict[str, tuple[str | None, str | None, tuple[str, ...]]] = {
    "absent": (None, None, ()),
    "empty": ("", None, ()),
    "duplicates are dropped and all is sorted": (f"{GROUP}foo,{GROUP}bar,{GROUP}foo", None, ("bar", "foo")),
    "old name": (None, f"{GROUP}foo", ("foo",)),
    "old name, empty": (None, "", ()),
    "both the same": (f"{GROUP}foo", f"{GROUP}foo", ("foo",)),
}


@pytest.mark.parametrize(("extra", "old", "added"), GROUPS.values(), ids=GROUPS)
def test_groups_are_read_from_either_key(extra: str | None, old: str | None, added: tuple[str, ...]) -> None:
    wanted = ("system:bootstrappers", *(GROUP + group for group in added))
    assert tokens.parse_groups(extra, old) == wanted


NO_GROUPS = {
    "not a group": ("foo", None, "BadBootstrapGroup"),
    "trailing comma": (f"{GROUP}foo,", None, "BadBootstrapGroup"),
    "only a comma": (",", None, "BadBootstrapGroup"),
    "not trimmed": (f"{GROUP}foo, {GROUP}bar", None, "BadBootstrapGroup"),
    "bad under the old name": (None, "system:masters", "BadBootstrapGroup"),
    "names that differ": (f"{GROUP}foo", f"{GROUP}bar", "BootstrapGroupsConflict"),
    "empty beside the old name": ("", f"{GROUP}bar", "BootstrapGroupsConflict"),
}


@pytest.mark.parametrize(("extra", "old", "reason"), NO_GROUPS.values(), ids=NO_GROUPS)
def test_groups_are_refused(extra: str | None, old: str | None, reason: str) -> None:
    assert refusal(lambda: tokens.parse_groups(extra, old)).reason == reason


@pytest.mark.parametrize("usages", [[], ["signing"], ["authentication"], ["signing", "authentication"]])
def test_usages_are_good(usages: list[str]) -> None:
    tokens.validate_usages(usages)


@pytest.mark.parametrize(
    ("usages", "named"),
    [
        (["foo"], "foo"),
        (["signing", "foo"], "foo"),
        (["foo", "bar", "authentication", "foo"], "bar,foo"),
        (["Signing"], "Signing"),
        ([""], ""),
    ],
)
def test_usages_are_refused(usages: list[str], named: str) -> None:
    refused = refusal(lambda: tokens.validate_usages(usages))
    assert refused.message == (
        f"invalid bootstrap token usage string: {named}, valid usage options: signing,authentication"
    )
    assert refused.reason == "BadBootstrapUsage"


# --- expiration ------------------------------------------------------------------------------------------------------


def at(*parts: int) -> datetime.datetime:
    year, month, day, *rest = parts
    hour, minute, second, micros = (*rest, 0, 0, 0, 0)[:4]
    return datetime.datetime(year, month, day, hour, minute, second, micros, tzinfo=datetime.UTC)


INSTANTS = {
    "UTC": ("2026-11-15T12:00:00Z", at(2026, 11, 15, 12)),
    "ahead of UTC": ("2026-11-15T14:30:00+02:30", at(2026, 11, 15, 12)),
    "behind UTC": ("2026-11-15T10:00:00-02:00", at(2026, 11, 15, 12)),
    "fraction": ("2026-11-15T12:00:00.5Z", at(2026, 11, 15, 12, 0, 0, 500000)),
    "fraction cut, never rounded up": ("2026-11-15T12:00:00.999999999Z", at(2026, 11, 15, 12, 0, 0, 999999)),
    "fraction of 40 digits": (f"2026-11-15T12:00:00.{'1' * 40}Z", at(2026, 11, 15, 12, 0, 0, 111111)),
    "comma, as Go has it": ("2026-11-15T12:00:00,25Z", at(2026, 11, 15, 12, 0, 0, 250000)),
    "hour of one digit, as Go has it": ("2026-11-15T9:00:00Z", at(2026, 11, 15, 9)),
    "offset of 24:60, as Go has it": ("2026-11-15T12:00:00-24:60", at(2026, 11, 16, 13)),
    "minus zero": ("2026-11-15T12:00:00-00:00", at(2026, 11, 15, 12)),
    "leap day": ("2028-02-29T00:00:00Z", at(2028, 2, 29)),
    "after the last year": ("9999-12-31T23:59:59-14:00", datetime.datetime.max.replace(tzinfo=datetime.UTC)),
    "before the first year": ("0001-01-01T00:00:00+14:00", datetime.datetime.min.replace(tzinfo=datetime.UTC)),
    "year 0": ("0000-02-29T00:00:00Z", datetime.datetime.min.replace(tzinfo=datetime.UTC)),
}


@pytest.mark.parametrize(("text", "wanted"), INSTANTS.values(), ids=INSTANTS)
def test_an_expiration_is_read_in_utc(text: str, wanted: datetime.datetime) -> None:
    found = tokens.parse_expiration(text)
    assert found == wanted
    assert found.tzinfo is datetime.UTC
    second = datetime.timedelta(seconds=1)
    assert tokens.expired(text, wanted), "what has no time left has expired"
    if wanted - at(1, 1, 1) > second:
        assert not tokens.expired(text, wanted - second)


def test_no_expiration_is_never() -> None:
    assert tokens.parse_expiration("") is None
    assert not tokens.expired("", datetime.datetime.max.replace(tzinfo=datetime.UTC))


NO_INSTANTS = {
    "garbage": "garbage",
    "space": " ",
    "date only": "2109-11-10",
    "no zone": "2109-11-10T23:00:00",
    "lower-case letters": "2109-11-10t23:00:00z",
    "space for the T": "2109-11-10 23:00:00Z",
    "trailing newline": "2109-11-10T23:00:00Z\n",
    "leading space": " 2109-11-10T23:00:00Z",
    "Unix time": "4413207600",
    "month 13": "2109-13-10T23:00:00Z",
    "month 0": "2109-00-10T23:00:00Z",
    "30 February": "2109-02-30T23:00:00Z",
    "29 February of a common year": "2109-02-29T23:00:00Z",
    "hour 24": "2109-11-10T24:00:00Z",
    "minute 60": "2109-11-10T23:60:00Z",
    "leap second": "2109-11-10T23:59:60Z",
    "offset hour 25": "2109-11-10T23:00:00+25:00",
    "offset minute 61": "2109-11-10T23:00:00+01:61",
    "offset without a colon": "2109-11-10T23:00:00+0100",
    "offset of seconds": "2109-11-10T23:00:00+01:00:00",
    "Z and an offset": "2109-11-10T23:00:00Z+01:00",
    "empty fraction": "2109-11-10T23:00:00.Z",
    "five-digit year": "12109-11-10T23:00:00Z",
    "negative year": "-2109-11-10T23:00:00Z",
    "Arabic digits": "٢١٠٩-11-10T23:00:00Z",
    "a megabyte": "2" * (1 << 20),
}


@pytest.mark.parametrize("text", NO_INSTANTS.values(), ids=NO_INSTANTS)
def test_what_cannot_be_read_has_expired(text: str) -> None:
    refused = refusal(lambda: tokens.parse_expiration(text))
    assert refused.reason == "BadTokenExpiration"
    assert len(refused.message) < 1000
    assert tokens.expired(text, NOW)


# --- making ----------------------------------------------------------------------------------------------------------


def test_octets_become_letters() -> None:
    given = bytes([0, 9, 10, 35, 36, 251, *range(100, 116)])
    token = tokens.generate(lambda count: given[:count])
    assert token.id == "09az0z"
    assert token.secret == "".join("0123456789abcdefghijklmnopqrstuvwxyz"[octet % 36] for octet in range(100, 116))
    assert tokens.parse(token.text) == token


def test_every_letter_is_as_likely() -> None:
    """Of all 256 octets, each letter comes from seven; the four that are left over are drawn again."""
    stream = itertools.cycle(range(256))
    drawn = 0

    def octets(count: int) -> bytes:
        nonlocal drawn
        drawn += count
        return bytes(itertools.islice(stream, count))

    # 22 letters a token, 252 letters a turn of the stream: after 126 tokens, eleven whole turns.
    letters = "".join(tokens.generate(octets).text.replace(".", "") for _ in range(126))
    counts = {letter: letters.count(letter) for letter in set(letters)}
    assert len(counts) == 36
    assert set(counts.values()) == {77}
    assert 11 * 256 - 4 <= drawn <= 11 * 256


def test_octets_that_are_too_few_are_misuse() -> None:
    with pytest.raises(errors.Misuse, match="asked for 22 octets, got 3"):
        tokens.generate(lambda _: b"abc")


def test_octets_that_are_never_fair_are_misuse() -> None:
    with pytest.raises(errors.Misuse, match="not random"):
        tokens.generate(lambda count: b"\xff" * count)


def test_the_secret_of_a_token() -> None:
    made = tokens.secret_document(
        TOKEN,
        expiration=datetime.datetime(
            2026, 11, 15, 14, 0, 0, 999, tzinfo=datetime.timezone(datetime.timedelta(hours=2))
        ),
        usages=["signing", "authentication"],
        groups=[f"{GROUP}b", f"{GROUP}a"],
        description="für Knoten",
    )
    plain = {key: base64.b64decode(value).decode() for key, value in made.pop("data").items()}
    assert made == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "bootstrap-token-foobar", "namespace": "kube-system"},
        "type": "bootstrap.kubernetes.io/token",
    }
    assert plain == {
        "token-id": "foobar",
        "token-secret": "circumnavigation",
        "description": "für Knoten",
        "expiration": "2026-11-15T12:00:00Z",
        "auth-extra-groups": f"{GROUP}b,{GROUP}a",
        "usage-bootstrap-signing": "true",
        "usage-bootstrap-authentication": "true",
    }


def test_what_is_not_given_is_not_written() -> None:
    assert set(tokens.secret_document(TOKEN)["data"]) == {"token-id", "token-secret"}


@pytest.mark.parametrize(
    ("token", "rest", "reason"),
    [
        (tokens.Token("FOOBAR", "circumnavigation"), {}, "BadBootstrapToken"),
        (tokens.Token("foobar", "short"), {}, "BadBootstrapToken"),
        (TOKEN, {"usages": ["foo"]}, "BadBootstrapUsage"),
        (TOKEN, {"groups": ["system:masters"]}, "BadBootstrapGroup"),
        (TOKEN, {"groups": [f"{GROUP}a,system:masters"]}, "BadBootstrapGroup"),
    ],
)
def test_a_bad_secret_is_not_made(token: tokens.Token, rest: dict[str, Any], reason: str) -> None:
    assert refusal(lambda: tokens.secret_document(token, **rest)).reason == reason


def test_an_expiration_without_a_zone_is_misuse() -> None:
    with pytest.raises(errors.Misuse):
        tokens.secret_document(TOKEN, expiration=datetime.datetime(2026, 11, 15))


# --- reading back ----------------------------------------------------------------------------------------------------


def test_a_secret_is_read_back() -> None:
    made = tokens.secret_document(
        TOKEN, expiration=NOW, usages=["signing", "authentication"], groups=[f"{GROUP}a"], description="x"
    )
    made["data"]["usage-bootstrap-other"] = encoded("false")
    made["data"]["auth-groups"] = encoded(f"{GROUP}old")
    made["metadata"]["deletionTimestamp"] = "2026-11-15T12:00:00Z"
    assert tokens.read(made) == tokens.TokenSecret(
        name="bootstrap-token-foobar",
        token=TOKEN,
        expiration="2026-11-15T12:00:00Z",
        usages=("authentication", "signing"),
        extra_groups=f"{GROUP}a",
        old_groups=f"{GROUP}old",
        description="x",
        deleting=True,
    )


def test_line_breaks_and_null_are_read_as_go_does() -> None:
    made = document()
    text = made["data"]["token-secret"]
    made["data"] |= {"token-secret": f"{text[:4]}\r\n{text[4:]}\n", "description": None, 7: "not a key"}
    found = tokens.read(made)
    assert found.token == TOKEN
    assert found.description == ""


BROKEN: dict[str, tuple[Any, str]] = {
    "null": (None, "NotADocument"),
    "a list": ([], "NotADocument"),
    "a text": ("foobar.circumnavigation", "NotADocument"),
    "an empty mapping": ({}, "NotADocument"),
    "no metadata": (document(lambda made: made.pop("metadata")), "NotADocument"),
    "metadata of a wrong type": (document(lambda made: made.update(metadata=[])), "NotADocument"),
    "no type": (document(lambda made: made.pop("type")), "WrongSecretType"),
    "another type": (document(lambda made: made.update(type="Opaque")), "WrongSecretType"),
    "a type in upper case": (document(lambda made: made.update(type=tokens.SECRET_TYPE.upper())), "WrongSecretType"),
    "a type of a wrong type": (document(lambda made: made.update(type=[tokens.SECRET_TYPE])), "WrongSecretType"),
    "no data": (document(lambda made: made.pop("data")), "NoSecretData"),
    "null data": (document(lambda made: made.update(data=None)), "NoSecretData"),
    "data of a wrong type": (document(lambda made: made.update(data="x")), "NoSecretData"),
    **{
        f"{key} is {what}": (
            document(lambda made, key=key, value=value: made["data"].update({key: value})),  # type: ignore[misc]
            "BadSecretData",
        )
        for key in ("token-secret", "expiration", "auth-extra-groups", "usage-bootstrap-authentication", "description")
        for what, value in {
            "not base64": "!!!!",
            "base64 cut off": "QQ=",
            "base64 without padding": "QQ",
            "base64 with too much padding": "YWJj====",
            "base64 and more": "QQ==QQ==",
            "not ASCII": "é" * 4,
            "a number": 7,
            "a list": ["QQ=="],
        }.items()
    },
}


@pytest.mark.parametrize(("made", "reason"), BROKEN.values(), ids=BROKEN)
def test_a_broken_document_is_refused(made: Any, reason: str) -> None:
    assert refusal(lambda: tokens.read(made)).reason == reason


def test_octets_that_are_no_text_match_nothing() -> None:
    found = tokens.read(document(token_secret=b"\xff" * 16, description=b"\xff", expiration=b"\xff"))
    assert found.token.secret == r"\xff" * 16
    assert not tokens.is_well_formed(found.token.text)
    assert found.description == r"\xff"
    assert tokens.expired(found.expiration, NOW)


def test_a_name_that_is_no_text() -> None:
    assert tokens.read(document(lambda made: made["metadata"].update(name=7))).name == ""


MISNAMED = "bootstrap token name is not of the form 'bootstrap-token-(token-id)'. "
INCONSISTENT = {
    "no id": ("bootstrap-token-foobar", "", "s", "bootstrap Token Secret has no token-id data: bootstrap-token-foobar"),
    "another name": (
        "bootstrap-token-barfoo",
        "foobar",
        "s",
        f'{MISNAMED}Actual: "bootstrap-token-barfoo". Expected: "bootstrap-token-foobar"',
    ),
    "an id of another shape": (
        "bootstrap-token-foo",
        "foo",
        "s",
        f'{MISNAMED}Actual: "bootstrap-token-foo". Expected: "bootstrap-token-foo"',
    ),
    "no secret": (
        "bootstrap-token-foobar",
        "foobar",
        "",
        "bootstrap Token Secret has no token-secret data: bootstrap-token-foobar",
    ),
}


@pytest.mark.parametrize(("name", "token_id", "secret", "text"), INCONSISTENT.values(), ids=INCONSISTENT)
def test_a_secret_whose_name_and_data_differ_is_refused(name: str, token_id: str, secret: str, text: str) -> None:
    found = tokens.TokenSecret(name=name, token=tokens.Token(token_id, secret))
    assert refusal(lambda: tokens.require_consistent(found)).message == text


def test_a_secret_whose_name_and_data_agree_passes() -> None:
    tokens.require_consistent(tokens.read(document()))
