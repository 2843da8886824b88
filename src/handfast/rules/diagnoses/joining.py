# SPDX-License-Identifier: Apache-2.0
"""Checks of what a machine needs to join: cluster-info, its signatures, and the tokens. No secret stands in what is said. It reads nothing.

1. cluster-info is there, can be read, and strangers may read it.
2. It names a CA by which this kubeconfig believes the server, too. Another one would lead machines elsewhere.
3. Every token that may sign has a signature there, and it is good. One without its token is left over.
4. Every token can be read, and none has been over for longer than the cleaner takes.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Final

from handfast import errors
from handfast.api import durations, jsonpath, objects
from handfast.bootstrap import cluster_info as infos
from handfast.bootstrap import jws, token_views, tokens
from handfast.pki import pem, pins
from handfast.rules import check
from handfast.rules.diagnoses import facts

_OK: Final = check.Verdict.OK
_WARNING: Final = check.Verdict.WARNING
_FAILED: Final = check.Verdict.FAILED
_WHERE: Final = f"{infos.NAMESPACE}/{infos.NAME}"
_PUBLISHER: Final = "see that the controller clusterinfo runs, or publish it as kubeadm does"
_SIGNER: Final = "see that the controller bootstrapsigner runs"
# How long the cleaner may take.
_CLEANED: Final = datetime.timedelta(minutes=1)


def cluster_info(known: facts.Facts) -> check.Check:
    name, stored = "cluster-info", known.cluster_info
    if isinstance(stored, check.Unread):
        return check.unread(name, stored)
    # 1. there, and readable
    if stored is None:
        said = f"there is no ConfigMap {_WHERE}: no machine can join by a token"
        return check.Check(name, _FAILED, said, "NoClusterInfo", _PUBLISHER)
    try:
        info = infos.read(_kubeconfig(stored))
    except errors.Refused as refused:
        return check.Check(name, _FAILED, refused.message, refused.reason, _PUBLISHER)
    # 2. the CA that is known here
    if known.own_ca is not None and info.ca is not None and not _keys(known.own_ca) & _keys(info.ca):
        said = f"{_WHERE} names another CA than the kubeconfig that was used here"
        hint = f"if the CA was changed, take it into the kubeconfig; if not, somebody has changed {_WHERE}"
        return check.Check(name, _FAILED, said, "UnknownAuthority", hint)
    if isinstance(known.stranger, check.Unread):
        return check.unread(name, known.stranger)
    if known.stranger != 200:
        said = f"who has no credential may not read {_WHERE} ({known.stranger}): machines join by a file only"
        return check.Check(
            name, _WARNING, said, "AnonymousRefused", "`handfast init` allows it; --anonymous-from may not"
        )
    return check.Check(name, _OK, f"machines are sent to {check.several(info.servers)}")


def signatures(known: facts.Facts) -> check.Check:
    name, stored = "signatures", known.cluster_info
    for part in (stored, known.tokens):
        if isinstance(part, check.Unread):
            return check.unread(name, part)
    content, there = _kubeconfig(stored), _signatures(stored)
    signing = {each.token.id: each.token for each in _views(known.tokens) if _signs(each, known.now)}
    # 3. one for each, and good
    missing = sorted(set(signing) - set(there))
    wrong = sorted(key for key, token in signing.items() if key in there and not _is_good(there[key], content, token))
    if wrong:
        said = f"not made by the token that they name: {check.several(wrong)}"
        return check.Check(name, _FAILED, said, "SignatureMismatch", _SIGNER)
    if missing:
        said = f"no signature of {check.several(missing)}: machines with these tokens find no cluster"
        return check.Check(name, _FAILED, said, "SignatureMissing", _SIGNER)
    over = sorted(set(there) - {each.token.id for each in _views(known.tokens)})
    if over:
        said = f"left over from tokens that are gone: {check.several(over)}"
        return check.Check(name, _WARNING, said, "SignatureLeftOver", _SIGNER)
    return check.Check(name, _OK, f"{len(signing)} good" if signing else "no token signs")


def token_list(known: facts.Facts) -> check.Check:
    name, listed = "tokens", known.tokens
    if isinstance(listed, check.Unread):
        return check.unread(name, listed)
    views = list(_views(listed))
    # 4. readable, and not over
    seen = {tokens.secret_name(each.token.id) for each in views if not each.unreadable}
    broken = [title for each in listed if (title := jsonpath.text(each, "metadata", "name")) not in seen]
    late = [each.token.id for each in views if each.expires is not None and each.expires + _CLEANED < known.now]
    good = [each for each in views if each.expires is None or each.expires > known.now]
    said = _counted(good, known.now)
    if broken:
        told = f"{said}; refused everywhere, since they cannot be read: {check.several(broken)}"
        return check.Check(
            name, _WARNING, told, "TokenUnreadable", "delete them, and make new ones: handfast token create"
        )
    if late:
        told = f"{said}; over, and not deleted: {check.several(late)}"
        return check.Check(name, _WARNING, told, "TokenExpired", "see that the controller tokencleaner runs")
    return check.Check(name, _OK, said)


def _counted(good: Sequence[token_views.View], now: datetime.datetime) -> str:
    if not good:
        return "there is none: no machine can join by a token now"
    ends = [each.expires for each in good if each.expires is not None]
    first = f", the first ends in {durations.short(min(ends) - now)}" if ends else ""
    endless = f", {len(good) - len(ends)} without an end" if len(ends) < len(good) else ""
    return f"{len(good)} good{first}{endless}"


def _views(listed: Sequence[objects.Document] | check.Unread) -> Iterator[token_views.View]:
    """Those that can be read."""
    for each in () if isinstance(listed, check.Unread) else listed:
        try:
            yield token_views.view(each)
        except errors.Refused:
            continue


def _signs(each: token_views.View, now: datetime.datetime) -> bool:
    return tokens.SIGNING in each.usages and (each.expires is None or each.expires > now)


def _is_good(signature: str, content: str, token: tokens.Token) -> bool:
    try:
        jws.verify(signature, content.encode("utf-8", "surrogatepass"), token)
    except errors.Refused:
        return False
    return True


def _kubeconfig(stored: check.Stored) -> str:
    return jsonpath.text(stored, "data", infos.KUBECONFIG_KEY)


def _signatures(stored: check.Stored) -> dict[str, str]:
    start = infos.SIGNATURE_PREFIX
    data = jsonpath.mapping(stored, "data")
    return {key.removeprefix(start): str(text) for key, text in data.items() if key.startswith(start)}


def _keys(bundle: bytes) -> set[pins.Pin]:
    try:
        return {pins.of_certificate(der) for der in pem.certificates_from_pem(bundle)}
    except errors.Refused:
        return set()
