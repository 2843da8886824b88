# SPDX-License-Identifier: Apache-2.0
"""Changes what lies on this machine from one configuration to the next, and keeps what lay there before, so that it can be taken back.

It does not know what a configuration means (`rules.machine_config.applying`) nor where it comes from (`configuration`). Its records are in
`DIRECTORY`, which is this user's alone: the files that are kept may be credentials.

1. One process changes the machine at a time.
2. Before the first change, everything that will be touched is kept: contents, mode, owner, or that nothing was there. Then the journal
   is written: how everything lay, and the record as it was. Only then is anything changed.
3. The change is done when the new record is written and the journal is gone. After a crash before that, the next start puts everything back
   by the journal, as often as it takes: putting back twice is the same as once.
4. What fails on the way is rolled back at once, in the same way.
5. A path that the new configuration does not have any more gets back what lay there before this program first wrote it.
6. `restore` puts back how everything lay before the last change, by a journal of its own. The rendering that was taken back is held
   off until another one is wanted, or until somebody releases it: else the agent would bring it back a moment later.
7. Kept contents that no record names any more are removed.
8. A record or journal that would be too large to be read again is not written: then nothing is changed.
9. The credential files can be applied on their own (`apply_credential`): nothing else of the machine is looked at, or in the way.
10. Where somebody has put what is neither file nor link in a path's place, putting back leaves it there and goes on: it is drift. `restore`,
    which somebody waits for, refuses before anything is changed.

| step | what a crash leaves | the next start |
|---|---|---|
| contents are kept | files in `kept/` that no record names | removes them |
| the journal is written | nothing changed | puts back, which changes nothing |
| any file or link is written or removed | some new, some old | puts back |
| the record is written | all new | puts back, with the old record |
| the journal is removed | done | nothing |
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import msgspec
import structlog

from handfast import errors
from handfast.node import root_files, root_owners
from handfast.rules.machine_config import applying, drift, host_paths, planned_units

DIRECTORY: Final = "/var/lib/handfast/configuration"
_RECORD: Final = f"{DIRECTORY}/record.json"
_JOURNAL: Final = f"{DIRECTORY}/journal.json"
_REPORT: Final = f"{DIRECTORY}/report.json"
_KEPT: Final = f"{DIRECTORY}/kept"
_MAX_RECORD: Final = 16 << 20
_MAX_UNIT: Final = 1 << 20

_log = structlog.get_logger("handfast.node")

Entries = dict[str, drift.Entry]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One rendering on this machine: how everything should lie, and how it lay before this program first wrote it."""

    rendering: str = ""
    entries: Entries = field(default_factory=dict)
    origins: Entries = field(default_factory=dict)
    sections: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is applied, what was applied before, and how everything that the last change touched lay before it (`undo`).

    `held` is a rendering that was taken back by hand.
    """

    applied: Generation = field(default_factory=Generation)
    before: Generation | None = None
    undo: Entries = field(default_factory=dict)
    held: str = ""
    # It is Ignition's work, and has not been compared with what the server has.
    adopted: bool = False


class _Journal(msgspec.Struct, frozen=True):
    """How everything is to lie, and the record that goes with it."""

    entries: Entries
    record: Record


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent said last of the configuration."""

    desired: str = ""
    state: str = ""
    reason: str = ""


class Machine:
    """The machine below a root, as configurations leave it."""

    def __init__(self, root: root_files.Root) -> None:
        self.root = root
        self._owner = root_owners.own()
        self._traces: dict[str, tuple[root_files.Trace, drift.Entry]] = {}

    def prepare(self) -> None:
        """The directory of the records; refused where others may look into it."""
        self.root.private_directory(DIRECTORY)
        self.root.private_directory(_KEPT)

    def recover(self) -> bool:
        """Roll back what a crash cut short (3); whether there was something."""
        with self._alone():
            return self._roll_back()

    def record(self) -> Record:
        """What is applied now."""
        return self._read(_RECORD, Record) or Record()

    def drifts(self, record: Record) -> tuple[drift.Drift, ...]:
        """What is not as the record says: by stat, then by content where that has changed since the last look."""
        wanted = record.applied.entries
        self._traces = {path: self._traced(path) for path in wanted}
        return drift.compare(wanted, {path: entry for path, (_, entry) in self._traces.items()})

    def _traced(self, path: str) -> tuple[root_files.Trace, drift.Entry]:
        try:
            trace = self.root.trace(path)
            known = self._traces.get(path)
            return known if known is not None and known[0] == trace else (trace, self.root.entry(path))
        except errors.Refused:
            # A link in its path leads elsewhere, or it has grown too large.
            return (), drift.Entry(drift.OTHER)

    def unfinished(self) -> bool:
        """Whether a change is under way, or was cut short."""
        return self.root.entry(_JOURNAL) != drift.NOTHING

    def report(self) -> Report:
        return self._read(_REPORT, Report) or Report()

    def say(self, report: Report) -> None:
        """Leave a report for `handfast node configuration status`."""
        if report != self.report():
            self._write(_REPORT, report)

    def apply(self, plan: applying.Plan) -> tuple[str, ...]:
        """Make everything lie as planned; the paths that were not so."""
        with self._alone():
            self._roll_back()
            record = self.record()
            wanted, contents = self._wanted(plan, record)
            touched = self._touched(wanted)
            return self._change(
                _Journal(touched, record), wanted, contents, self._following(plan, record, wanted, touched)
            )

    def apply_credential(self, plan: applying.Plan) -> tuple[str, ...]:
        """Make the credential files of a plan lie there, and nothing else of it (9); the paths that were not so."""
        with self._alone():
            self._roll_back()
            record = self.record()
            files = [file for file in plan.files if file.path in host_paths.CREDENTIALS]
            wanted, contents = self._wanted_files(files)
            touched = self._touched(wanted)
            applied = replace(
                record.applied,
                entries=record.applied.entries | wanted,
                origins=touched | record.applied.origins,
            )
            undo = touched | record.undo if record.before else record.undo
            following = replace(record, applied=applied, undo=undo)
            return () if following == record else self._change(_Journal(touched, record), wanted, contents, following)

    def _touched(self, wanted: Entries) -> Entries:
        """How everything that is wanted lies now; refused where it cannot be replaced."""
        touched = {path: self.root.entry(path) for path in wanted}
        self._require_replaceable(touched)
        return touched

    def _change(
        self, back: _Journal, wanted: Entries, contents: Mapping[str, bytes], following: Record
    ) -> tuple[str, ...]:
        """From what `back` says to what is wanted, with the record that goes with it; the paths that were not so."""
        touched = back.entries
        differing = tuple(path for path in wanted if wanted[path] != touched[path])
        # 2. kept, and in the journal, before the first change
        self._keep(touched, wanted)
        self._write(_JOURNAL, back)
        try:
            for path in differing:
                self._put(path, wanted[path], contents)
            # 3. done when the journal is gone
            self._write(_RECORD, following)
            self.root.remove(_JOURNAL)
        except errors.HandfastError:
            # 4. rolled back at once
            self._roll_back()
            raise
        self._forget(following)
        return differing

    def adopt(self, plan: applying.Plan) -> None:
        """Record what Ignition did at the first boot: it is this rendering, and nothing of it was there before."""
        with self._alone():
            self._roll_back()
            if self.record() != Record():
                return
            wanted, _ = self._wanted(plan, Record())
            origins = dict.fromkeys(wanted, drift.NOTHING)
            adopted = Generation(
                rendering=plan.rendering, entries=wanted, origins=origins, sections=dict(plan.sections)
            )
            self._write(_RECORD, Record(applied=adopted, adopted=True))

    def restore(self) -> tuple[str, ...]:
        """Put back how everything lay before the last change (6); the paths that were put back."""
        with self._alone():
            self._roll_back()
            record = self.record()
            if record.before is None:
                raise errors.Refused(
                    f"there is nothing to restore below {self.root.path}: no configuration was applied since the last time",
                    reason="NothingToRestore",
                    hint="`handfast node configuration status` shows what is applied",
                )
            # 10. nothing is changed where something is in the way
            self._touched(record.undo)
            back = Record(applied=record.before, held=record.applied.rendering)
            self._write(_JOURNAL, _Journal(record.undo, back))
            self._roll_back()
            return tuple(sorted(record.undo))

    def release(self) -> str:
        """Let the rendering that was taken back be applied again; its name, empty where none is held off."""
        with self._alone():
            self._roll_back()
            record = self.record()
            if record.held:
                self._write(_RECORD, replace(record, held=""))
            return record.held

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        # 1. one process at a time
        self.prepare()
        with self.root.locked(DIRECTORY):
            yield

    def _wanted(self, plan: applying.Plan, record: Record) -> tuple[Entries, Mapping[str, bytes]]:
        """How everything is to lie, and the contents of the files that are new."""
        wanted, contents = self._wanted_files(plan.files)
        uid, gid = self._owner
        wanted |= {
            path: drift.Entry(drift.LINK, uid=uid, gid=gid, target=target) for path, target in plan.links.items()
        }
        # A unit is enabled by links: a file of that name is somebody's own, and stays.
        wanted |= {path: drift.NOTHING for path in plan.absent if self.root.entry(path).kind != drift.FILE}
        # 5. what it has no more gets back what lay there
        leaving = (path for path in record.applied.entries if path not in wanted and path not in applying.STAYS)
        return wanted | {path: record.applied.origins.get(path, drift.NOTHING) for path in leaving}, contents

    def _wanted_files(self, planned: Iterable[applying.PlannedFile]) -> tuple[Entries, Mapping[str, bytes]]:
        owners = root_owners.Owners(self.root)
        wanted: Entries = {}
        contents: dict[str, bytes] = {}
        for file in planned:
            digest = hashlib.sha256(file.content).hexdigest()
            wanted[file.path] = drift.Entry(drift.FILE, digest, file.mode, *owners.of(file.path, file.user, file.group))
            contents[digest] = file.content
        return wanted, contents

    @staticmethod
    def _following(plan: applying.Plan, record: Record, wanted: Entries, touched: Entries) -> Record:
        """The record once everything lies as wanted."""
        stays = {file.path for file in plan.files} | set(plan.links) | set(plan.absent)
        applied = Generation(
            rendering=plan.rendering,
            entries={path: entry for path, entry in wanted.items() if path in stays},
            origins={path: record.applied.origins.get(path, touched[path]) for path in wanted if path in stays},
            sections=dict(plan.sections),
        )
        if record.applied.rendering == plan.rendering:
            # The same once more: what lay before this rendering is still what is restored.
            return Record(applied=applied, before=record.before, undo=touched | record.undo if record.before else {})
        return Record(applied=applied, before=record.applied, undo=touched)

    @staticmethod
    def _require_replaceable(touched: Entries) -> None:
        for path, entry in touched.items():
            if entry.kind == drift.OTHER:
                raise errors.Refused(
                    f"cannot write {path}: what lies there is neither a file nor a link",
                    reason="NotAFile",
                    hint="move it away, or have the configuration name another path",
                )

    def _roll_back(self) -> bool:
        journal = self._read(_JOURNAL, _Journal)
        if journal is None:
            self._forget(self.record())
            return False
        in_the_way = [path for path, entry in journal.entries.items() if not self._put_back(path, entry)]
        self._write(_RECORD, journal.record)
        self.root.remove(_JOURNAL)
        self._forget(journal.record)
        _log.info(
            "a configuration was taken back",
            paths=len(journal.entries),
            rendering=journal.record.applied.rendering,
            in_the_way=in_the_way,
        )
        return True

    def _put_back(self, path: str, entry: drift.Entry) -> bool:
        """Make a path lie as it did; whether that was possible, or something is in the way (10)."""
        try:
            lies = self.root.entry(path)
        except errors.Refused:
            # What lies above it is no directory any more, or leads elsewhere.
            return False
        if lies.kind == drift.OTHER:
            return False
        self.root.sweep(path)
        if lies != entry:
            self._put(path, entry, {})
        return True

    def _put(self, path: str, entry: drift.Entry, contents: Mapping[str, bytes]) -> None:
        if entry.kind == drift.FILE:
            content = contents.get(entry.digest)
            content = self._kept(entry.digest) if content is None else content
            self.root.put_file(path, content, mode=entry.mode, owner=(entry.uid, entry.gid))
        elif entry.kind == drift.LINK:
            self.root.put_link(path, entry.target, owner=(entry.uid, entry.gid))
        else:
            self.root.remove(path)

    # What is kept.

    def _keep(self, touched: Entries, wanted: Entries) -> None:
        """The contents of everything that will be replaced, and of what it was before."""
        for path, entry in touched.items():
            if entry.kind == drift.FILE and (wanted[path] != entry or not self._has(entry.digest)):
                content = self.root.read(path) or b""
                if hashlib.sha256(content).hexdigest() != entry.digest:
                    raise errors.Unavailable(f"{path} changes while it is looked at", reason="FileChanges")
                if not self._has(entry.digest):
                    self.root.put_file(f"{_KEPT}/{entry.digest}", content, mode=0o600, owner=self._owner)

    def _has(self, digest: str) -> bool:
        return self.root.entry(f"{_KEPT}/{digest}").digest == digest

    def _kept(self, digest: str) -> bytes:
        content = self.root.read(f"{_KEPT}/{digest}")
        if content is None or hashlib.sha256(content).hexdigest() != digest:
            raise errors.Refused(
                f"the contents {digest} that were kept in {self.root.path}{_KEPT} are gone, or are others",
                reason="KeptContentsLost",
                hint="put the file there back from a backup of this machine",
            )
        return content

    def _forget(self, record: Record) -> None:
        # 7. what no record names
        generations = [record.applied.origins, record.undo]
        generations += [] if record.before is None else [record.before.origins]
        named = {entry.digest for entries in generations for entry in entries.values()}
        for name in self.root.names(_KEPT):
            if name not in named:
                self.root.remove(f"{_KEPT}/{name}")

    def _write(self, path: str, value: Record | _Journal | Report) -> None:
        data = msgspec.json.encode(value)
        # 8. nothing that could not be read again
        if len(data) > _MAX_RECORD:
            raise errors.Refused(
                f"what is to be remembered of this configuration has {len(data):,} bytes, and may have {_MAX_RECORD:,}: nothing was changed",
                reason="RecordTooLarge",
                hint="have the MachineConfigs of the pool name fewer files, units and links, or shorter paths",
            )
        self.root.put_file(path, data, mode=0o600, owner=self._owner)

    def _read(self, path: str, kind: type[T]) -> T | None:
        data = self.root.read(path, limit=_MAX_RECORD)
        try:
            return None if data is None else msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise errors.Refused(
                f"{self.root.path}{path} cannot be read: it is not what this program writes",
                reason="RecordUnreadable",
                hint=f"put it back from a backup of this machine; what was kept is in {self.root.path}{_KEPT}",
            ) from None


def vendor_units(root: root_files.Root, wanted: tuple[str, ...]) -> dict[str, planned_units.VendorUnit]:
    """Those of these units that the operating system below the root brings."""
    units: dict[str, planned_units.VendorUnit] = {}
    for name in wanted:
        for path in (f"{directory}/{name}" for directory in planned_units.VENDOR_UNITS):
            text = root.read(path, limit=_MAX_UNIT) if name not in units else None
            if text is not None:
                units[name] = planned_units.VendorUnit(path, text.decode("utf-8", "replace"))
    return units
