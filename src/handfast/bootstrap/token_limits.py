# SPDX-License-Identifier: Apache-2.0
"""What a bootstrap token is limited to, and who has used it: the annotations of its Secret, read and written.

It does not decide whether a use is allowed (`rules.tokens.use` does) and enforces nothing (`apiserver.admission.token_limits`
does, and counts there).

| annotation | says | allowed |
|---|---|---|
| `handfast.dev/max-uses` | how many keys may ask for a certificate | a number from 1 to `MAX_USES` |
| `handfast.dev/allowed-nodes` | for which nodes | names or globs, separated by commas; `*` is any run of characters, `?` is one |
| `handfast.dev/allowed-cidrs` | from where the token is accepted | networks in CIDR form, separated by commas |
| `handfast.dev/uses` | the uses, oldest first | a JSON list of {time, node, key, source} |
| `handfast.dev/use-count` | how many uses there were, also those no longer listed | a number |

An annotation that is not there limits nothing. One that is there and cannot be read is an error, never no limit.

A use is one public key asking for one node. All uses of a token with `max-uses` are listed, because each may be asked
for again; of other tokens `KEPT`: the first half of them and the newest half, so that nobody who has the token can flush
out who used it before. With names as long as they may be, both fit into half of what annotations may hold.
"""

from __future__ import annotations

import datetime
import functools
import ipaddress
import json
import re
from dataclasses import dataclass
from typing import Final

import msgspec

from handfast import errors
from handfast.api import jsonpath, objects

MAX_USES_KEY: Final = "handfast.dev/max-uses"
NODES_KEY: Final = "handfast.dev/allowed-nodes"
CIDRS_KEY: Final = "handfast.dev/allowed-cidrs"
USES_KEY: Final = "handfast.dev/uses"
COUNT_KEY: Final = "handfast.dev/use-count"
MAX_USES: Final = 256
KEPT: Final = 32

_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_KEY = re.compile(r"sha256:[0-9a-f]{64}")
_CIDR = re.compile(r"[0-9a-fA-F.:]+/[0-9]{1,3}")
_WILD = re.compile(r"[*?]")
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_MAX_QUOTED: Final = 256

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a token may be used for; each part that is empty limits nothing."""

    max_uses: int | None = None
    nodes: tuple[str, ...] = ()
    cidrs: tuple[Network, ...] = ()


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """One key that asked for a certificate. `node` is empty where it was not one for a node; `key` is `sha256:<hex>`."""

    time: datetime.datetime
    node: str
    key: str
    source: str


class _Row(msgspec.Struct, frozen=True):
    """A use as it is written."""

    time: str
    node: str
    key: str
    source: str


class Record(msgspec.Struct, frozen=True):
    """The limits of a token and who has used it, read once. `count` is that of all uses, also those no longer listed."""

    limits: Limits
    rows: tuple[_Row, ...]
    count: int

    def lists(self, key: str, node: str) -> bool:
        """Whether this key's asking for this node is among the uses."""
        return any(row.key == key and row.node == node for row in self.rows)

    def with_use(self, use: Use) -> Record:
        """With one more use: the count is exact, the list is bounded."""
        half = (KEPT if self.limits.max_uses is None else MAX_USES) // 2
        rows = (*self.rows, _Row(objects.timestamp(use.time), use.node, use.key, use.source))
        if len(rows) > 2 * half:
            rows = rows[:half] + rows[-half:]
        return Record(self.limits, rows, self.count + 1)


_decode_rows = msgspec.json.Decoder(list[_Row]).decode
_encode = msgspec.json.Encoder().encode


def read(document: object) -> Limits:
    """The limits that a token's Secret states; Refused if one of them cannot be read."""
    max_uses, nodes = _annotation(document, MAX_USES_KEY), _annotation(document, NODES_KEY)
    return Limits(
        max_uses=None if max_uses is None else parse_max_uses(max_uses),
        nodes=() if nodes is None else parse_nodes(nodes),
        cidrs=cidrs(document),
    )


def cidrs(document: object) -> tuple[Network, ...]:
    """Only from where: asked of every request with a token."""
    text = _annotation(document, CIDRS_KEY)
    return () if text is None else parse_cidrs(text)


def as_annotations(limits: Limits) -> dict[str, str]:
    """The annotations that state these limits."""
    annotations = {
        MAX_USES_KEY: "" if limits.max_uses is None else str(limits.max_uses),
        NODES_KEY: ",".join(limits.nodes),
        CIDRS_KEY: ",".join(str(network) for network in limits.cidrs),
    }
    return {key: value for key, value in annotations.items() if value}


def parse_max_uses(text: str, where: str = MAX_USES_KEY) -> int:
    """A number of uses; `where` is what an error calls it: the annotation, or an option of the command line."""
    found = int(text) if _NUMBER.fullmatch(text) else 0
    if not 1 <= found <= MAX_USES:
        raise _refused(f"{where}: {_quoted(text)} is no number of uses; allowed: 1 to {MAX_USES}")
    return found


@functools.lru_cache(maxsize=1024)
def parse_nodes(text: str, where: str = NODES_KEY) -> tuple[str, ...]:
    """Names of nodes or globs for them, separated by commas."""
    return tuple(dict.fromkeys(_node(part.strip(), where) for part in text.split(",")))


@functools.lru_cache(maxsize=1024)
def parse_cidrs(text: str, where: str = CIDRS_KEY) -> tuple[Network, ...]:
    """Networks in CIDR form, separated by commas. Each has a prefix length and no host bits."""
    return tuple(dict.fromkeys(_network(part.strip(), where) for part in text.split(",")))


def matches(pattern: str, name: str) -> bool:
    """Whether a node's name is the one named, or one that the glob stands for. What is no node's name matches nothing."""
    if objects.dns_subdomain(name) is not None:
        return False
    # After a mismatch only the last `*` can take more: that keeps the steps below the product of both lengths.
    at = here = taken = 0
    star = -1
    while here < len(name):
        wanted = pattern[at : at + 1]
        if wanted == "*":
            star, taken = at, here
            at += 1
        elif wanted in {"?", name[here]}:
            at += 1
            here += 1
        elif star >= 0:
            taken += 1
            at, here = star + 1, taken
        else:
            return False
    return not pattern[at:].strip("*")


def record(document: object) -> Record:
    """All that a token's Secret says; Refused if some of it cannot be read."""
    rows = tuple(_rows(document))
    return Record(read(document), rows, _count(document, len(rows)))


def uses(document: object) -> list[Use]:
    """The uses listed on a token's Secret, oldest first; Refused if the list cannot be read."""
    return [_use(row) for row in _rows(document)]


def count(document: object) -> int:
    """How many uses there were, with those no longer listed; Refused if that cannot be read."""
    return _count(document, len(_rows(document)))


def uses_left(document: object) -> int | None:
    """How many more keys may use the token; None: any number."""
    found = record(document)
    return None if found.limits.max_uses is None else max(0, found.limits.max_uses - found.count)


def written(document: objects.Document, uses_record: Record) -> objects.Document:
    """The Secret with these uses on it."""
    metadata = objects.metadata(document)
    said = {USES_KEY: _encode(uses_record.rows).decode(), COUNT_KEY: str(uses_record.count)}
    noted = {**jsonpath.mapping(metadata, "annotations"), **said}
    return {**document, "metadata": {**metadata, "annotations": noted}}


def _count(document: object, listed: int) -> int:
    text = _annotation(document, COUNT_KEY)
    if text is None:
        return listed
    if not _NUMBER.fullmatch(text):
        raise _refused(f"{COUNT_KEY}: {_quoted(text)} is no number of uses")
    return max(int(text), listed)


def _rows(document: object) -> list[_Row]:
    text = _annotation(document, USES_KEY)
    if text is None:
        return []
    try:
        rows = _decode_rows(text)
        for row in rows:
            _use(row)
    except (ValueError, OverflowError, RecursionError):
        raise _refused(
            f"{USES_KEY}: must be a JSON list of uses, each with time (RFC 3339), node, key (sha256:<hex>) and source"
        ) from None
    return rows


def warning() -> str:
    """What whoever limits a token has to know, where its server may be one that does not look at these annotations."""
    return (
        "this API server is not Handfast's: it does not enforce --max-uses, --node and --cidr, and keeps no record of "
        "uses. Whoever holds the token can join any number of machines under any name and from anywhere until it "
        "expires or is deleted"
    )


def _annotation(document: object, key: str) -> str | None:
    found = jsonpath.at(document, "metadata", "annotations", key)
    if found is None or isinstance(found, str):
        return found
    raise _refused(f"{key}: must be a text")


def _node(part: str, where: str) -> str:
    # A glob is well formed if it would be a name with letters in place of what is open.
    if objects.dns_subdomain(_WILD.sub("a", part)) is not None:
        raise _refused(
            f"{where}: {_quoted(part)} is neither a node's name nor a glob for some; allowed: names such as worker-1 or "
            "worker-1.example.com in lower case, with * for any run of characters and ? for one, separated by commas"
        )
    return part


def _network(part: str, where: str) -> Network:
    wrong = "is no network in CIDR form"
    # Python would also take netmasks, interfaces, and an address alone.
    if _CIDR.fullmatch(part):
        try:
            network = ipaddress.ip_network(part)
        except ValueError as error:
            # The text of the error is not shown: it is about Python's arguments.
            wrong = "has host bits set" if str(error).endswith("has host bits set") else wrong
        else:
            if not isinstance(network, ipaddress.IPv6Network) or not network.subnet_of(_MAPPED):
                return network
            wrong = "is IPv4 written as IPv6"
    allowed = "networks such as 10.0.0.0/8 or fd00::/8, 192.0.2.7/32 for one address, separated by commas"
    raise _refused(f"{where}: {_quoted(part)} {wrong}; allowed: {allowed}")


def _use(row: _Row) -> Use:
    if not _KEY.fullmatch(row.key):
        raise ValueError(row.key)
    return Use(time=objects.parse_timestamp(row.time), node=row.node, key=row.key, source=row.source)


def _quoted(text: str) -> str:
    return json.dumps(text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…")


def _refused(message: str) -> errors.Refused:
    return errors.Refused(message, reason="BadTokenLimits")
