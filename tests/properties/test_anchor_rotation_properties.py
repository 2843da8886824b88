# SPDX-License-Identifier: Apache-2.0
"""Replacing the root of the mesh, in every order, with a crash after every write: whoever is known believes the issuer that signs, and each other."""

from __future__ import annotations

import dataclasses
import datetime

from hypothesis import settings, stateful
from hypothesis import strategies as some

from handfast.rules import trust_rotation
from handfast.rules.mesh import anchor_rotation as rotation
from handfast.rules.mesh import anchor_waits, believers, issuer, names

START = datetime.datetime(2026, 11, 17, 12, 0, tzinfo=datetime.UTC)
MESH = names.Mesh("cluster.local")
MATERIALS = tuple(issuer.generate(START) for _ in range(4))
ROOTS = {
    rotation.signer_of(material): issuer.read_anchors(material.anchors).anchors[0].fingerprint for material in MATERIALS
}


# Most often all of them: else a rotation rarely comes far.
CUTS = some.sampled_from([4, 4, 4, 3, 2, 1])
WHICH = some.sampled_from([None, None, 0, 1, 2])


@dataclasses.dataclass
class Pod:
    """A workload: whom it believes, what it would begin with, and who signed its certificate."""

    name: str
    kind: believers.Kind
    variables: frozenset[str]
    roots: frozenset[str]
    signer: str


class Mesh(stateful.RuleBasedStateMachine):
    """The objects, who follows them with a delay, and Pods that come, learn, renew and go."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.anchors = issuer.read_anchors(MATERIALS[0].anchors)
        self.material = MATERIALS[0]
        self.record: rotation.Record | None = None
        # What the injector and the identity service have noticed.
        self.injected = self.anchors
        self.signing = self.material
        self.pods: list[Pod] = []
        self.number = 0
        self.finished = 0

    # The operator.

    @stateful.rule(cut=CUTS, back=some.sampled_from([False] * 9 + [True]))
    def rotate(self, cut: int, *, back: bool = False) -> None:
        stored = rotation.Stored(self.anchors, rotation.signer_of(self.material))
        if back:
            self.undo(cut)
            return
        if self.record is None:
            there = dataclasses.replace(self.material, anchors=self.anchors.to_pem())
            coming = MATERIALS[(MATERIALS.index(self.material) + 1) % len(MATERIALS)]
            planned = rotation.begun(there, coming, MESH, self.now)
        else:
            planned = rotation.resumed(self.record, stored)
        if not anchor_waits.waits(planned, self.known(), self.now):
            self.write(planned, cut)

    def undo(self, cut: int) -> None:
        if self.record is not None and self.record.state.doing is not trust_rotation.Step.RETIRE:
            self.write(rotation.undone(self.record), cut)

    def write(self, planned: rotation.Record, cut: int) -> None:
        """So many of the writes; then the operator is gone."""
        stored = rotation.Stored(self.anchors, rotation.signer_of(self.material))
        for write in rotation.writes(planned, stored, self.now)[:cut]:
            match write:
                case rotation.Note(record):
                    # As it is read again.
                    self.record = rotation.decode(rotation.encode(record))
                case rotation.Trust(anchors, _):
                    self.anchors = anchors
                case rotation.Sign(material):
                    self.material = next(each for each in MATERIALS if each.certificate == material.certificate)
                case rotation.Forget():
                    self.record = None
                    self.finished += 1

    def known(self) -> believers.Known:
        return believers.Known(
            believers=tuple(
                believers.Believer(
                    pod=pod.name,
                    kind=pod.kind,
                    roots=pod.roots,
                    variables=pod.variables,
                    signers=frozenset({rotation.tag_of(pod.signer)}),
                    until=self.now,
                )
                for pod in self.pods
            )
        )

    # Everybody else.

    @stateful.rule(learning=some.booleans())
    def time_passes(self, *, learning: bool) -> None:
        self.now += anchor_waits.NOTICE_TIME
        self.injected, self.signing = self.anchors, self.material
        if learning:
            self.learn(None)

    @stateful.initialize()
    def begin(self) -> None:
        self.start(believers.Kind.AGENT)
        self.start(believers.Kind.AGENT)

    @stateful.precondition(lambda self: len(self.pods) < 4)
    @stateful.rule(kind=some.sampled_from([believers.Kind.AGENT, believers.Kind.AGENT, believers.Kind.STOCK]))
    def start(self, kind: believers.Kind) -> None:
        self.number += 1
        roots = frozenset(anchor.fingerprint for anchor in self.injected.anchors)
        # Before an agent has reported, it is known by its variables, as a stock proxy is.
        pod = Pod(f"shop/web-{self.number}", kind, roots, roots, rotation.signer_of(self.signing))
        self.pods.append(pod)

    @stateful.precondition(lambda self: self.pods)
    @stateful.rule(number=WHICH)
    def learn(self, number: int | None) -> None:
        for pod in self.chosen(number):
            if pod.kind is believers.Kind.AGENT:
                pod.roots = frozenset(anchor.fingerprint for anchor in self.anchors.anchors)

    @stateful.precondition(lambda self: self.pods)
    @stateful.rule(number=WHICH)
    def renew(self, number: int | None) -> None:
        for pod in self.chosen(number):
            pod.signer = rotation.signer_of(self.signing)

    @stateful.precondition(lambda self: len(self.pods) > 2)
    @stateful.rule()
    def end(self) -> None:
        # One after the other, stock proxies first: they never learn.
        del self.pods[next((at for at, pod in enumerate(self.pods) if pod.kind is believers.Kind.STOCK), 0)]

    def chosen(self, number: int | None) -> list[Pod]:
        """One of them, or all."""
        return self.pods if number is None else [self.pods[number % len(self.pods)]]

    # What must hold.

    @stateful.invariant()
    def everybody_believes_who_signs(self) -> None:
        for signer in (self.signing, self.material):
            for pod in self.pods:
                assert ROOTS[rotation.signer_of(signer)] in pod.roots

    @stateful.invariant()
    def everybody_believes_everybody(self) -> None:
        for one in self.pods:
            for other in self.pods:
                assert ROOTS[one.signer] in other.roots

    @stateful.invariant()
    def who_signs_is_believed_by_the_anchors(self) -> None:
        assert ROOTS[rotation.signer_of(self.material)] in {anchor.fingerprint for anchor in self.anchors.anchors}


TestMesh = Mesh.TestCase
TestMesh.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


def test_a_rotation_comes_to_its_end_where_nobody_is_behind():
    mesh = Mesh()
    mesh.start(believers.Kind.AGENT)
    for _ in range(3):
        mesh.rotate(4)
        mesh.time_passes(learning=True)
        mesh.renew(None)
    assert mesh.finished == 1
    assert mesh.material == MATERIALS[1]
    mesh.teardown()
