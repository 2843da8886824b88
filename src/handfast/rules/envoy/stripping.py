# SPDX-License-Identifier: Apache-2.0
"""Headers and trailers of the mesh that come from outside, and are removed: everything that begins with `l5d-`. Which are set instead, the routes say.

1. Of requests all are removed, also those with an underscore for the hyphen: to CGI, and to what came after it, both are one header.
2. Of answers all but two: `l5d-server-id`, which the routes have removed and set anew by then, and `l5d-proxy-error`, by which a proxy says why it refused.
   That one is for people to read: nothing is decided by it.
3. Of trailers all, both ways: no proxy sets one, and many servers have headers and trailers in one table. Those of HTTP/1.1 Envoy leaves out by itself.

| who | holding | tries | stopped by | shown in tests/scenarios/test_envoy_judging.py |
|---|---|---|---|---|
| a client | HTTP/2 | be another for the application, by a trailer | 3 | test_nobody_brings_a_name_of_his_own_in_a_trailer |
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from handfast.rules.envoy import resources

SERVER_ID: Final = "l5d-server-id"
ERROR_HEADER: Final = "l5d-proxy-error"
_PREFIX: Final = "l5d-"
_ALL: Final = {"safe_regex": {"regex": "(?i)l5d[_-].*"}}
_KEPT: Final = (SERVER_ID, ERROR_HEADER)


def _removed(name: resources.Document) -> resources.Document:
    return {"remove_on_match": {"key_matcher": name}}


# 1. all of requests; 3. and of trailers
_FROM_OUTSIDE: Final = {
    part: [_removed(_ALL)]
    for part in ("request_mutations", "request_trailers_mutations", "response_trailers_mutations")
}


def requests() -> resources.Document:
    """A filter for requests, and for the trailers of answers."""
    return resources.mutation(**_FROM_OUTSIDE)


def requests_and_answers() -> resources.Document:
    """A filter for both. Envoy has the names of headers in small letters."""
    # 2. all but two
    others = _PREFIX + _others({name.removeprefix(_PREFIX) for name in _KEPT})
    return resources.mutation(**_FROM_OUTSIDE, response_mutations=[_removed({"safe_regex": {"regex": others}})])


def _others(words: Iterable[str]) -> str:
    """A pattern of every text that is none of the words: RE2 has no other way to say so."""
    known = set(words)
    heads = sorted({word[0] for word in known if word})
    rows = [re.escape(head) + _others({word[1:] for word in known if word.startswith(head)}) for head in heads]
    rows.append(f"[^{''.join(map(re.escape, heads))}].*" if heads else ".+")
    # Whatever ends here is none of them, unless one does.
    return f"({'|'.join(rows)})" + ("" if "" in known else "?")
