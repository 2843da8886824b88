# SPDX-License-Identifier: Apache-2.0
r"""Bootstrap tokens: their grammar, and the Secret that holds one, written and read.

It judges nobody (`token_verdict`), draws no random octets and asks no clock, it looks nothing up, and it signs nothing: the
caller does all that. A token's secret half never stands in a `repr` or an error, and is compared only in constant time.

| who | holding | tries | stopped by | shown in tests/unit/bootstrap/test_tokens.py |
|---|---|---|---|---|
| a reader of logs | errors | find a secret in them | nothing prints it | test_no_error_shows_a_secret |
| a reader of logs | tracebacks | find a secret in a repr | nothing prints it | test_no_repr_shows_a_secret |
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hmac
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from handfast import errors
from handfast.api import objects

SECRET_TYPE: Final = "bootstrap.kubernetes.io/token"  # noqa: S105 - the name of a type
NAMESPACE: Final = "kube-system"
NAME_PREFIX: Final = "bootstrap-token-"
KEY_ID: Final = "token-id"
KEY_SECRET: Final = "token-secret"  # noqa: S105 - the name of a key
KEY_EXPIRATION: Final = "expiration"
KEY_DESCRIPTION: Final = "description"
KEY_GROUPS: Final = "auth-extra-groups"
KEY_GROUPS_OLD: Final = "auth-groups"
USAGE_PREFIX: Final = "usage-bootstrap-"
SIGNING: Final = "signing"
AUTHENTICATION: Final = "authentication"
USAGES: Final = (SIGNING, AUTHENTICATION)
USER_PREFIX: Final = "system:bootstrap:"
DEFAULT_GROUP: Final = "system:bootstrappers"

# What messages say in place of Kubernetes' regular expressions.
TOKEN_FORM: Final = "a token is six letters or digits, a dot, and sixteen more; letters are lower-case"  # noqa: S105 - a form
GROUP_FORM: Final = "system:bootstrappers: and 1 to 256 characters, which are lower-case letters, digits, : or -, the last a letter or digit"
# For people, in a table: a text of any length would push all else out of sight.
MAX_DESCRIPTION: Final = 256

_ID_LENGTH: Final = 6
_SECRET_LENGTH: Final = 16
_ID = re.compile(r"[a-z0-9]{6}")
_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")
# Go's reader of RFC 3339 also takes an hour of one digit, a comma before the fraction, and offsets up to 24:60.
_EXPIRATION = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
# Every remainder of 36 is as frequent as the others among the octets below this.
_FAIR_OCTETS: Final = 252
_MAX_DRAWS: Final = 64
_MAX_QUOTED: Final = 512
_FIRST: Final = datetime.datetime.min.replace(tzinfo=datetime.UTC)
_LAST: Final = datetime.datetime.max.replace(tzinfo=datetime.UTC)

# A stable word, and a sentence.
Finding = tuple[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Token:
    """The two halves. It does not print its secret, and two of them are compared in constant time."""

    id: str
    secret: str = field(repr=False)

    @property
    def text(self) -> str:
        """The whole token: only for whoever is to have it."""
        return f"{self.id}.{self.secret}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Token):
            return NotImplemented
        return self.id == other.id and same(self.secret, other.secret)

    def __hash__(self) -> int:
        return hash(self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSecret:
    """What a Secret says about its token, unchecked: a controller and a server ask different things of it."""

    name: str
    token: Token
    expiration: str = ""
    # Those whose value is `true`, without the prefix, sorted.
    usages: tuple[str, ...] = ()
    # As they stand; None: there is no such key.
    extra_groups: str | None = None
    old_groups: str | None = None
    description: str = ""
    deleting: bool = False


def is_well_formed(text: str) -> bool:
    """Is this the shape of a bootstrap token?"""
    # The length comes first: it is no secret, and a text of any size costs the same.
    if len(text) != _ID_LENGTH + 1 + _SECRET_LENGTH or text[_ID_LENGTH] != ".":
        return False
    return _only_letters(text[:_ID_LENGTH] + text[_ID_LENGTH + 1 :])


def presented(text: str) -> Token | None:
    """The token that somebody shows; None: a text of another shape."""
    return Token(text[:_ID_LENGTH], text[_ID_LENGTH + 1 :]) if is_well_formed(text) else None


def parse(text: str) -> Token:
    """The token; the refusal repeats at most its id, since whatever else was given may be a secret."""
    token = presented(text)
    if token is None:
        head, dot, _ = text.partition(".")
        shown = f"{head}.<hidden>" if dot and _ID.fullmatch(head) else "<hidden>"
        raise errors.Refused(
            f"the bootstrap token {_quoted(shown)} is not well formed",
            reason="BadBootstrapToken",
            hint=TOKEN_FORM,
        )
    return token


def secret_name(token_id: str) -> str:
    """The name of the Secret of a token."""
    return NAME_PREFIX + token_id


def parse_secret_name(name: str) -> str:
    """The id in the name of a Secret."""
    token_id = name.removeprefix(NAME_PREFIX)
    if not name.startswith(NAME_PREFIX) or not _ID.fullmatch(token_id):
        raise errors.Refused(
            f"the Secret name {_quoted(name)} is not {NAME_PREFIX} and six lower-case letters or digits",
            reason="BadBootstrapSecretName",
        )
    return token_id


def validate_group(group: str) -> None:
    """An extra group of a token, or Refused."""
    if not _GROUP.fullmatch(group):
        raise errors.Refused(
            f"bootstrap group {_quoted(group)} is invalid: it must be {GROUP_FORM}", reason="BadBootstrapGroup"
        )


def validate_description(description: str) -> None:
    """What a new token is for, in at most `MAX_DESCRIPTION` characters, or Refused."""
    if len(description) > MAX_DESCRIPTION:
        raise errors.Refused(
            f"the description has {len(description)} characters; at most {MAX_DESCRIPTION} are allowed",
            reason="BadBootstrapDescription",
            hint="say what the token is for in one short sentence",
        )


def validate_usages(usages: Iterable[str]) -> None:
    """What a token may be used for, or Refused with all that is not known."""
    unknown = sorted(set(usages) - set(USAGES))
    if unknown:
        raise errors.Refused(
            f"invalid bootstrap token usage string: {','.join(unknown)}, valid usage options: {','.join(USAGES)}",
            reason="BadBootstrapUsage",
        )


def parse_groups(extra: str | None, old: str | None = None) -> tuple[str, ...]:
    """The groups of a token's user: the values of `auth-extra-groups` and `auth-groups`, None where absent."""
    if extra is not None and old is not None and extra != old:
        raise errors.Refused(
            f"{KEY_GROUPS} and its old name {KEY_GROUPS_OLD} say different things: keep only {KEY_GROUPS}",
            reason="BootstrapGroupsConflict",
        )
    text = old if extra is None else extra
    groups = text.split(",") if text else []
    for group in groups:
        validate_group(group)
    return tuple(sorted({DEFAULT_GROUP, *groups}))


def parse_expiration(text: str) -> datetime.datetime | None:
    """The instant, in UTC; None: never. Instants outside the years 1 to 9999 become the nearest that can be held."""
    try:
        return _instant(text) if text else None
    except ValueError:
        raise errors.Refused(
            f"{KEY_EXPIRATION}: can't parse {_quoted(text)}: must be an RFC 3339 time such as 2030-01-31T12:00:00Z",
            reason="BadTokenExpiration",
        ) from None


def _instant(text: str) -> datetime.datetime:
    match = _EXPIRATION.fullmatch(text)
    if match is None:
        raise ValueError(text)
    year, month, day, hour, minute, second = map(int, match.group(1, 2, 3, 4, 5, 6))
    hours, minutes = int(match[9] or 0), int(match[10] or 0)
    if hours > 24 or minutes > 60:
        raise ValueError(text)
    microsecond = int((match[7] or "")[:6].ljust(6, "0"))
    # Year 0 is a leap year to Go; Python knows the next one.
    local = datetime.datetime(year or 4, month, day, hour, minute, second, microsecond, tzinfo=datetime.UTC)
    offset = datetime.timedelta(hours=hours, minutes=minutes)
    try:
        shifted = local + offset if match[8] == "-" else local - offset
    except OverflowError:
        shifted = _LAST if match[8] == "-" else _FIRST
    return shifted if year else _FIRST


def expired(text: str, now: datetime.datetime) -> bool:
    """Is the time of an `expiration` up? What cannot be read counts as expired."""
    try:
        until = parse_expiration(text)
    except errors.Refused:
        return True
    return until is not None and until <= now


def generate(octets: Callable[[int], bytes]) -> Token:
    """A new token from random octets, which `octets` gives in the number asked for."""
    letters = _letters(octets, _ID_LENGTH + _SECRET_LENGTH)
    return Token(letters[:_ID_LENGTH], letters[_ID_LENGTH:])


def secret_document(
    token: Token,
    *,
    expiration: datetime.datetime | None = None,
    usages: Sequence[str] = (),
    groups: Sequence[str] = (),
    description: str = "",
) -> objects.Document:
    """The Secret of a token, as kubeadm writes it."""
    parse(token.text)
    validate_usages(usages)
    for group in groups:
        validate_group(group)
    validate_description(description)
    data = {KEY_ID: token.id, KEY_SECRET: token.secret}
    if description:
        data[KEY_DESCRIPTION] = description
    if expiration is not None:
        if expiration.tzinfo is None:
            raise errors.Misuse("expiration: an instant without a time zone is none")
        at = expiration.astimezone(datetime.UTC).replace(microsecond=0, tzinfo=None)
        data[KEY_EXPIRATION] = f"{at.isoformat()}Z"
    if groups:
        data[KEY_GROUPS] = ",".join(groups)
    data |= {USAGE_PREFIX + usage: "true" for usage in usages}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret_name(token.id), "namespace": NAMESPACE},
        "type": SECRET_TYPE,
        "data": {key: base64.b64encode(value.encode()).decode("ascii") for key, value in data.items()},
    }


def read(document: object) -> TokenSecret:
    """What a Secret says, or Refused with what is wrong with its form."""
    secret, broken = look(document)
    if broken is not None:
        reason, sentence = broken
        raise errors.Refused(sentence, reason=reason)
    return secret


def require_consistent(secret: TokenSecret) -> None:
    """Name and data belong together and both halves are there: what a signature or a listing needs."""
    expected = secret_name(secret.token.id)
    wrong = ""
    if not secret.token.id:
        wrong = f"bootstrap Token Secret has no {KEY_ID} data: {secret.name}"
    elif secret.name != expected or not _ID.fullmatch(secret.token.id):
        wrong = (
            "bootstrap token name is not of the form 'bootstrap-token-(token-id)'. "
            f"Actual: {_quoted(secret.name)}. Expected: {_quoted(expected)}"
        )
    elif not secret.token.secret:
        wrong = f"bootstrap Token Secret has no {KEY_SECRET} data: {secret.name}"
    if wrong:
        raise errors.Refused(wrong, reason="BadBootstrapSecret")


def look(document: object) -> tuple[TokenSecret, Finding | None]:
    """What can be read of a Secret, and the first thing that is wrong with its form."""
    mapping: Mapping[Any, Any] = document if isinstance(document, dict) else {}
    metadata = mapping.get("metadata")
    data = mapping.get("data")
    broken: Finding | None = None
    if not isinstance(metadata, dict):
        broken = ("NotADocument", "this is not a document with metadata")
        metadata = {}
    elif mapping.get("type") != SECRET_TYPE:
        broken = ("WrongSecretType", f"type: must be {SECRET_TYPE}")
    elif not isinstance(data, dict):
        broken = ("NoSecretData", "data: must be a mapping")
    values, wrong = _values(data if isinstance(data, dict) else {})
    name = metadata.get("name")
    usages = (
        key.removeprefix(USAGE_PREFIX) for key in values if key.startswith(USAGE_PREFIX) and values[key] == "true"
    )
    secret = TokenSecret(
        name=name if isinstance(name, str) else "",
        token=Token(values.get(KEY_ID, ""), values.get(KEY_SECRET, "")),
        expiration=values.get(KEY_EXPIRATION, ""),
        usages=tuple(sorted(usages)),
        extra_groups=values.get(KEY_GROUPS),
        old_groups=values.get(KEY_GROUPS_OLD),
        description=values.get(KEY_DESCRIPTION, ""),
        deleting=metadata.get("deletionTimestamp") is not None,
    )
    return secret, broken or wrong


_READ = frozenset({KEY_ID, KEY_SECRET, KEY_EXPIRATION, KEY_DESCRIPTION, KEY_GROUPS, KEY_GROUPS_OLD})


def _values(data: Mapping[Any, Any]) -> tuple[dict[str, str], Finding | None]:
    """The values of the keys that are read here, as text; one that is not base64 is left out and told."""
    values: dict[str, str] = {}
    wrong: Finding | None = None
    for key, encoded in data.items():
        if not isinstance(key, str) or (key not in _READ and not key.startswith(USAGE_PREFIX)):
            continue
        value = _decoded(encoded)
        if value is None:
            wrong = wrong or ("BadSecretData", f"data[{_quoted(key)}]: must be base64")
        else:
            values[key] = value
    return values, wrong


def _decoded(encoded: object) -> str | None:
    """The text of a value, None if it is not base64. Octets that are no UTF-8 become escapes, which no grammar takes."""
    # Null is empty, and line breaks do not count, as in Go.
    packed = "" if encoded is None else encoded
    if not isinstance(packed, str):
        return None
    packed = packed.replace("\r", "").replace("\n", "")
    # Python's strict decoder lets padding pass that completes no group of four.
    if len(packed) % 4 or packed.endswith("==="):
        return None
    try:
        return binascii.a2b_base64(packed, strict_mode=True).decode("utf-8", "backslashreplace")
    except ValueError:
        return None


def same(one: str, other: str) -> bool:
    """In constant time."""
    return hmac.compare_digest(one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass"))


def _only_letters(text: str) -> bool:
    """Only 0-9 and a-z? Takes the same steps for all texts of a length: no branch and no table depends on a letter."""
    outside = 0
    for letter in text:
        code = ord(letter)
        # Negative, and so -1 after the shift, where the code is outside the range.
        no_digit = ((code - 0x30) | (0x39 - code)) >> 31
        no_lower = ((code - 0x61) | (0x7A - code)) >> 31
        outside |= no_digit & no_lower
    return outside == 0


def _letters(octets: Callable[[int], bytes], count: int) -> str:
    """So many letters of 0-9a-z, each as likely as the others; no branch depends on an octet that is used."""
    kept = bytearray()
    for _ in range(_MAX_DRAWS):
        wanted = count - len(kept)
        drawn = octets(wanted)
        if len(drawn) != wanted:
            raise errors.Misuse(f"octets: asked for {wanted} octets, got {len(drawn)}")
        kept += bytes(octet for octet in drawn if octet < _FAIR_OCTETS)
        if len(kept) == count:
            # '0' to '9', then a step of 39 to 'a'.
            return bytes(0x30 + value + (39 & ((9 - value) >> 8)) for value in (octet % 36 for octet in kept)).decode()
    raise errors.Misuse("octets: what they give is not random")


def _quoted(text: str) -> str:
    """In quotes, in one line and of a bounded length, as Go would print it."""
    shown = text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…"
    return json.dumps(shown, ensure_ascii=not shown.isprintable())
