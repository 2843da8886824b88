# SPDX-License-Identifier: Apache-2.0
"""This machine forgets that it is a node: which of its files are the agent's, and removing them. It asks no API server.

1. A certificate directory is the agent's if its lock is there: `join` and `node run` make it, and a kubelet does not. In any other
   directory nothing is removed, and what looks like an identity is told.
2. In it, files go that have a name which the agent gives, and are what the agent writes: regular files, or links where it makes links.
   Everything else stays, and is told.
3. A kubeconfig goes if it logs in with that directory's certificate, and a bootstrap kubeconfig if `join` wrote it. Others stay, and are told.
4. A systemd unit goes if its first line says that `join --systemd` wrote it. It is stopped and disabled first.
5. Nothing goes while an agent runs: whoever removes holds the directory's lock.
6. The certificates go after all else but the lock, so that a run that failed half-way still knows who this machine was. A second run
   finds what the first one left.
7. Nothing is followed: a link is removed, and what it leads to stays, unless it is a file of 2.

| who | holding | tries | stopped by | shown in tests/unit/node/test_reset.py |
|---|---|---|---|---|
| a user of the machine | a link in the directory, or in its place | have root remove a file elsewhere | 7 · `files.require_own_directory` | test_a_link_is_removed_and_what_it_leads_to_stays |
| an operator | the wrong --cert-dir | lose files of somebody else | 1, 2 | test_a_directory_of_somebody_else_is_left_alone |
| a kubelet | the same directory, and no agent | lose its identity | 1 | test_a_kubelets_directory_is_left_alone |
"""

from __future__ import annotations

import pathlib
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from handfast import errors
from handfast.bootstrap import kubeconfig, tokens
from handfast.node import certificate_store, kubeconfig_file, report, serving, units
from handfast.pki import pairs
from handfast.runtime import clock as clocks
from handfast.runtime import files

# What `join` calls the user of a bootstrap kubeconfig.
BOOTSTRAP_USER: Final = "tls-bootstrap-token-user"
_STAMP: Final = r"\d{4}(?:-\d\d){5}(?:-\d+)?"
_KINDS: Final = f"(?:{certificate_store.CLIENT}|{certificate_store.SERVER})"
_FILES: Final = re.compile(
    rf"{_KINDS}-{_STAMP}\.pem|{_KINDS}\.key\.tmp|\.{_KINDS}\S*\.\d+\.tmp"
    rf"|{re.escape(serving.CERTIFICATE)}|{re.escape(serving.KEY)}|{re.escape(report.STATUS)}|{re.escape(report.ROTATE)}"
)
_LINKS: Final = re.compile(rf"{_KINDS}-(?:current|updated)\.pem")
# 6. the identity itself
_LAST: Final = re.compile(rf"{certificate_store.CLIENT}\S*|{re.escape(report.STATUS)}")


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where a node's things are; each may be missing."""

    directory: pathlib.Path
    kubeconfig: pathlib.Path
    bootstrap_kubeconfig: pathlib.Path
    unit_directory: pathlib.Path = units.DIRECTORY

    @property
    def unit(self) -> pathlib.Path:
        return self.unit_directory / units.NAME

    @property
    def lock(self) -> pathlib.Path:
        return self.directory / files.LOCK_NAME


class Kept(msgspec.Struct, frozen=True):
    """Something that stays, and why."""

    path: pathlib.Path
    why: str


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What is there: which node this is (empty: that is not known), its pairs, what goes, in order, and what stays."""

    node: str
    pairs: tuple[pairs.Pair, ...]
    unit: pathlib.Path | None
    removed: tuple[pathlib.Path, ...]
    kept: tuple[Kept, ...]

    @property
    def nothing(self) -> bool:
        return self.unit is None and not self.removed


def look(places: Places, clock: clocks.Clock) -> Findings:
    """What would go, and what would stay; nothing is changed."""
    own, kept = _directory(places)
    current = certificate_store.CertificateStore(places.directory, certificate_store.CLIENT, clock).current
    others: list[pathlib.Path] = []
    for path, is_ours, why in (
        (places.kubeconfig, bool(own) and kubeconfig_file.leads_to(places.kubeconfig, current), _OTHERS),
        (places.bootstrap_kubeconfig, _is_bootstrap(places.bootstrap_kubeconfig), _NOT_OF_JOIN),
    ):
        if is_ours:
            others.append(path)
        elif _is_there(path):
            kept.append(Kept(path, why))
    unit = places.unit if _is_there(places.unit) else None
    if unit is not None and not _is_our_unit(unit):
        kept.append(Kept(unit, "`handfast join --systemd` did not write it"))
        unit = None
    chain = tuple(_pairs(own))
    return Findings(
        node=_node(chain, places.directory) if own else "",
        pairs=chain,
        unit=unit,
        removed=(*others, *own),
        kept=tuple(kept),
    )


_OTHERS: Final = "it does not log in with the certificate of this machine's agent"
_NOT_OF_JOIN: Final = "`handfast join` did not write it"


def _directory(places: Places) -> tuple[list[pathlib.Path], list[Kept]]:
    """What goes in the certificate directory, in order, and what stays."""
    if not _is_there(places.directory):
        return [], []
    with files.otherwise("name another directory with --cert-dir"):
        files.require_own_directory(places.directory)
        entries = sorted(_listed(places.directory))
    # 1. the agent's own directory
    if places.lock not in entries:
        why = "no agent of Handfast has used this directory"
        return [], [Kept(path, why) for path in entries if _FILES.fullmatch(path.name) or _LINKS.fullmatch(path.name)]
    # 2. names that the agent gives, and what it writes under them
    own = [path for path in entries if path != places.lock and _is_ours(path)]
    kept = [Kept(path, "it is no file of the agent") for path in entries if path != places.lock and path not in own]
    # 6. the identity after all else, and the lock after that
    own.sort(key=lambda path: bool(_LAST.fullmatch(path.name)))
    return [*own, places.lock], kept


def _listed(directory: pathlib.Path) -> Iterator[pathlib.Path]:
    try:
        yield from directory.iterdir()
    except OSError as error:
        raise files.explain(error, "list", directory) from error


def _is_ours(path: pathlib.Path) -> bool:
    mode = path.lstat().st_mode
    if _LINKS.fullmatch(path.name):
        return stat.S_ISLNK(mode)
    return bool(_FILES.fullmatch(path.name)) and stat.S_ISREG(mode)


def _is_there(path: pathlib.Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise files.explain(error, "look at", path) from error
    return True


def _is_bootstrap(path: pathlib.Path) -> bool:
    """Whether `join` wrote a bootstrap kubeconfig (3): kubeadm's has the same names, and not the other servers beside them."""
    try:
        read = kubeconfig.parse(files.read(path, limit=kubeconfig.MAX_BYTES).decode("utf-8", "replace"))
    except errors.Refused:
        return False
    user = read.user
    named = user is not None and user.name == BOOTSTRAP_USER and tokens.is_well_formed(user.token)
    return named and bool(read.cluster.beside.servers)


def _is_our_unit(path: pathlib.Path) -> bool:
    try:
        text = files.read(path, limit=1 << 20).decode("utf-8", "replace")
    except errors.Refused:
        return False
    return text.startswith(units.FIRST_LINE)


def _pairs(own: Sequence[pathlib.Path]) -> Iterator[pairs.Pair]:
    """The client certificates that are kept; what cannot be read goes all the same."""
    for path in own:
        if re.fullmatch(rf"{certificate_store.CLIENT}-{_STAMP}\.pem", path.name):
            try:
                yield pairs.read(files.read_private(path, limit=1 << 20))
            except errors.HandfastError:
                continue


def _node(chain: Sequence[pairs.Pair], directory: pathlib.Path) -> str:
    """The node's name, by its newest certificate, else by what its agent last said."""
    if chain:
        newest = max(chain, key=lambda pair: pair.leaf.not_before)
        return newest.leaf.subject.common_name.removeprefix("system:node:")
    last = report.read(directory)
    return "" if last is None else last.node


def carry_out(places: Places, clock: clocks.Clock, before: Callable[[Findings], None]) -> Findings:
    """Stop the agent, do what has to be done `before` the identity is gone, and remove it."""
    findings = look(places, clock)
    if findings.unit is not None:
        # 4. stopped first
        units.stop(places.unit_directory)
    lock = files.lock_directory(places.directory) if places.lock in findings.removed else None
    try:
        # 5. nobody writes there now; the agent may have until it stopped
        findings = look(places, clock)
        before(findings)
        for path in (*([] if findings.unit is None else [findings.unit]), *findings.removed):
            _remove(path)
    finally:
        if lock is not None:
            lock.release()
    if findings.unit is not None:
        units.forget(places.unit_directory)
    return findings


def _remove(path: pathlib.Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise files.explain(error, "remove", path) from error
