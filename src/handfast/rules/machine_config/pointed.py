# SPDX-License-Identifier: Apache-2.0
"""Where a pointer configuration leads: the one server it names, whom to trust there, and what to send along. It fetches nothing.

`pointer` writes such configurations. What only Ignition could do is refused by name.

1. It is Ignition, and names exactly one other configuration, to merge or to replace it.
2. That is at an https URL, and the CAs to trust there are in the pointer itself.
3. There is nothing else in it: no files, no units, no users.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from handfast import errors
from handfast.rules.machine_config import data_urls, ignition

BAD_POINTER: Final = "BadPointer"
_WHERE: Final = "the pointer configuration"
_ALLOWED: Final = frozenset({"ignition.config", "ignition.security", "ignition.timeouts"})
_CA_LIMIT: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Pointed:
    """A server's URL, its CAs as PEM, and the headers that prove who asks, which are secret; `source` has the hash."""

    url: str
    ca: bytes
    source: data_urls.Source
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def require(self, body: bytes) -> None:
        """Refuse what does not have the hash that the pointer has of it."""
        if self.source.hash is not None:
            data_urls.verify(body, self.source.hash, f"the answer of {self.url.partition('?')[0]}")


def read(data: bytes) -> Pointed:
    """What a pointer says, or an error that names what is wrong with it."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise _refused("is no JSON") from None
    config = ignition.parse(document, _WHERE)
    # 3. nothing else
    others = sorted({*config.other} - _ALLOWED)
    others += ["storage.files"] if config.files else []
    others += ["systemd.units"] if config.units else []
    if others:
        raise _refused(f"has {', '.join(others)}: only Ignition itself can do that")
    # 1. exactly one
    references = config.ignition.config
    sources = [*((references.merge if references else None) or ())]
    sources += [references.replace] if references and references.replace else []
    if len(sources) != 1 or sources[0].url is None:
        raise _refused(f"names {len(sources)} configurations: it has to name one, in ignition.config.merge")
    return Pointed(_url(sources[0].url), _cas(config), sources[0], _headers(sources[0]))


def _url(url: str) -> str:
    # 2. over https
    if not url.startswith("https://"):
        raise _refused(f"leads to {ignition.quoted(url.partition('?')[0])}: it has to be an https URL")
    return url


def _cas(config: ignition.Config) -> bytes:
    security = config.ignition.security
    sources = (security.tls.certificate_authorities if security and security.tls else None) or ()
    if not sources:
        raise _refused("names no CA in ignition.security.tls.certificateAuthorities: then nobody says whom to trust")
    where = f"{_WHERE}.ignition.security.tls.certificateAuthorities"
    return b"\n".join(data_urls.decode(source, _CA_LIMIT, where) for source in sources)


def _headers(source: data_urls.Source) -> dict[str, str]:
    return {header.name: header.value for header in source.http_headers or () if header.value}


def _refused(sentence: str) -> errors.Refused:
    return errors.Refused(
        f"{_WHERE} {sentence}",
        reason=BAD_POINTER,
        hint="`handfast machine ignition NAME` prints one for a machine",
    )
