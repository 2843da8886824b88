# SPDX-License-Identifier: Apache-2.0
"""The steps of a rotation: their order, what they wait for, the way back, and who signed when."""

import dataclasses
import datetime
import json

import pytest

from handfast import errors
from handfast.rules import trust_rotation as rotation
from handfast.rules.ledger import entries as ledger_entries
from handfast.rules.trust_rotation import Observed, State, Step, Target

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
MINUTE, HOUR, DAY = datetime.timedelta(minutes=1), datetime.timedelta(hours=1), datetime.timedelta(days=1)
NOTHING = Observed()


def after(*steps, target=Target.CA, at=NOW, new="new"):
    """The state once these steps are done, an hour each."""
    state = State(target=target, old="old", new=new)
    for number, step in enumerate(steps):
        instant = at + HOUR * number
        state = rotation.finish(rotation.begin(state, step, instant), step, instant)
    return state


def entry(name, issued, days=10, signer="kubernetes.io/kube-apiserver-client-kubelet"):
    return ledger_entries.Entry(
        issued_at=issued,
        signer=signer,
        requester="x",
        authenticated_by="x509",
        token_id="",
        key_fingerprint="0" * 64,
        serial=f"{name}-{issued:%H%M}",
        names=(f"CN=system:node:{name}",) if name else (),
        not_after=issued + DAY * days,
        rule="r",
        request="csr",
        certificate="0" * 64,
    )


class TestOrder:
    @pytest.mark.parametrize("target", Target)
    def test_each_step_follows_the_one_before(self, target):
        state = State(target=target, old="old", new="new")
        for step in rotation.STEPS[target]:
            assert state.next is step
            state = rotation.finish(rotation.begin(state, step, NOW), step, NOW)
        assert state.next is Step.RETIRE, "the last one is done again until its state is gone"

    def test_what_was_begun_comes_first(self):
        state = rotation.begin(after(Step.ADD), Step.PUBLISH, NOW)
        assert (state.next, state.doing) == (Step.PUBLISH, Step.PUBLISH)
        assert rotation.finish(state, Step.PUBLISH, NOW).doing is None

    def test_a_step_that_is_done_again_is_done_once(self):
        state = rotation.finish(after(Step.ADD), Step.ADD, NOW + DAY)
        assert state.done == ((Step.ADD, NOW + DAY),)
        assert state.done_at(Step.ADD) == NOW + DAY
        assert state.done_at(Step.SWITCH) is None

    def test_who_stays_and_who_leaves(self):
        state = after(Step.ADD, Step.PUBLISH, Step.SWITCH)
        assert (state.staying, state.leaving) == ("new", "old")
        undoing = rotation.undo(state)
        assert (undoing.staying, undoing.leaving) == ("old", "new")

    def test_when_the_other_began_to_sign(self):
        assert after(Step.ADD).switched is None
        state = after(Step.ADD, Step.PUBLISH, Step.SWITCH)
        assert state.switched == NOW + 2 * HOUR
        assert rotation.undo(state).switched is None

    def test_a_switch_that_is_done_again_counts_from_then(self):
        state = rotation.begin(after(Step.ADD, Step.PUBLISH), Step.SWITCH, NOW)
        again = rotation.begin(state, Step.SWITCH, NOW + DAY)
        assert again.signers == (("old", None), ("new", NOW + DAY))


class TestTheWayBack:
    @pytest.mark.parametrize("steps", [(), (Step.ADD,), (Step.ADD, Step.PUBLISH)])
    def test_before_the_switch_the_new_one_is_dropped(self, steps):
        state = rotation.undo(after(*steps))
        assert (state.next, state.staying, state.leaving) == (Step.DROP, "old", "new")
        assert rotation.undo(state) == state
        assert rotation.waits(state, NOTHING, NOW) == ()

    @pytest.mark.parametrize("steps", [(Step.SWITCH,), (Step.SWITCH, Step.REISSUE)])
    def test_after_it_they_change_places(self, steps):
        state = rotation.undo(after(Step.ADD, Step.PUBLISH, *steps))
        assert state.next is Step.SWITCH
        assert rotation.waits(state, NOTHING, NOW) == (), "both are known already"
        state = rotation.finish(rotation.begin(state, Step.SWITCH, NOW + DAY), Step.SWITCH, NOW + DAY)
        assert state.signers == (("old", None), ("new", NOW + 2 * HOUR), ("old", NOW + DAY))
        assert state.next is Step.REISSUE

    def test_and_back_again(self):
        state = rotation.undo(rotation.undo(after(Step.ADD, Step.PUBLISH, Step.SWITCH)))
        assert (state.staying, state.next) == ("new", Step.SWITCH)
        assert rotation.waits(state, NOTHING, NOW) == ()

    def test_a_switch_that_was_only_begun_is_one(self):
        state = rotation.begin(after(Step.ADD, Step.PUBLISH), Step.SWITCH, NOW)
        assert rotation.undo(state).next is Step.SWITCH

    def test_there_is_none_once_retiring_has_begun(self):
        state = after(Step.ADD, Step.PUBLISH, Step.SWITCH, Step.REISSUE)
        assert rotation.undo(state).staying == "old"
        with pytest.raises(errors.Refused) as caught:
            rotation.undo(rotation.begin(state, Step.RETIRE, NOW))
        assert caught.value.reason == "TooLate"


class TestSettling:
    @pytest.mark.parametrize("target", Target)
    def test_clients_have_time_to_learn(self, target):
        state = after(Step.ADD, Step.PUBLISH, target=target)
        published = NOW + HOUR
        (wait,) = rotation.waits(state, NOTHING, published)
        assert wait.until == published + rotation.PUBLICATION_TIME
        assert "2030-01-01T03:00:00Z" in wait.sentence
        assert rotation.waits(state, NOTHING, published + rotation.PUBLICATION_TIME) == ()

    def test_without_a_publication_there_is_nothing_to_wait_for(self):
        assert rotation.waits(State(target=Target.CA, old="o"), NOTHING, NOW) == ()
        assert rotation.waits(after(Step.ADD), NOTHING, NOW) == ()

    def test_a_step_that_was_begun_does_not_wait_again(self):
        state = rotation.begin(after(Step.ADD, Step.PUBLISH), Step.SWITCH, NOW)
        assert rotation.waits(state, NOTHING, NOW) == ()


class TestRenewals:
    STATE = after(Step.ADD, Step.PUBLISH, Step.SWITCH, Step.REISSUE)
    SWITCHED = NOW + 2 * HOUR

    def waits(self, *entries, now=NOW + DAY, running_nodes=frozenset({"a"})):
        return rotation.waits(self.STATE, Observed(entries=entries, running_nodes=running_nodes), now)

    def test_nobody_holds_one(self):
        assert self.waits() == ()

    def test_a_holder_is_waited_for_and_named(self):
        (wait,) = self.waits(entry("a", NOW))
        assert "1 certificate of the old CA is in use" in wait.sentence
        assert "CN=system:node:a" in wait.sentence
        assert wait.until == NOW + 10 * DAY

    def test_until_it_expires(self):
        assert self.waits(entry("a", NOW), now=NOW + 10 * DAY) == ()

    def test_until_it_has_a_newer_one(self):
        assert self.waits(entry("a", NOW), entry("a", self.SWITCHED + 2 * MINUTE)) == ()

    def test_a_newer_one_that_a_node_may_not_have_received(self):
        old, newer = entry("a", NOW), self.SWITCHED + 2 * MINUTE
        received = newer + rotation.RECEIPT_TIME
        assert self.waits(old, entry("a", newer), now=received) == ()
        for now, running_nodes in ((received - MINUTE, {"a"}), (received, ()), (received, {"b"})):
            (wait,) = self.waits(old, entry("a", newer), now=now, running_nodes=frozenset(running_nodes))
            assert "1 certificate of the old CA is renewed, but the node may lack the new one" in wait.sentence
            assert wait.sentence.endswith(": CN=system:node:a")
            assert wait.until == NOW + 10 * DAY
        # What has expired can be used no more, and people look at what they get.
        assert self.waits(old, entry("a", newer), now=NOW + 10 * DAY, running_nodes=frozenset()) == ()
        for name in ("", "jane"):
            pair = [dataclasses.replace(entry("", at), names=(f"CN={name}",) if name else ()) for at in (NOW, newer)]
            assert self.waits(*pair, now=newer, running_nodes=frozenset()) == ()

    def test_each_kind_is_told_apart(self):
        newer = self.SWITCHED + 2 * MINUTE
        found = self.waits(
            entry("a", NOW), entry("b", NOW), entry("b", newer), entry("a", NOW), running_nodes=frozenset()
        )
        assert [wait.sentence.partition(" of ")[0] for wait in found] == ["2 certificates", "1 certificate"]

    def test_another_holder_or_another_signer_does_not_count(self):
        for other in (entry("b", self.SWITCHED + HOUR), entry("a", self.SWITCHED + HOUR, signer="other")):
            assert len(self.waits(entry("a", NOW), other)) == 1

    def test_around_the_switch_a_certificate_may_be_of_either(self):
        assert len(self.waits(entry("a", self.SWITCHED + MINUTE / 2))) == 1
        assert len(self.waits(entry("a", self.SWITCHED - MINUTE / 2))) == 1
        assert self.waits(entry("a", self.SWITCHED + 2 * MINUTE)) == ()

    def test_many_are_counted_and_some_named(self):
        (wait,) = self.waits(*(entry(f"n{number:02}", NOW) for number in range(12)))
        assert "12 certificates" in wait.sentence
        assert wait.sentence.endswith("CN=system:node:n09 and 2 more")

    def test_one_without_a_name_is_told_by_its_serial(self):
        (wait,) = self.waits(entry("", NOW))
        assert wait.sentence.endswith(": -0000")

    def test_without_a_ledger_the_longest_lifetime_counts(self):
        seen = Observed(longest_lifetime=365 * DAY)
        (wait,) = rotation.waits(self.STATE, seen, NOW + DAY)
        assert wait.until == self.SWITCHED + 365 * DAY
        assert rotation.waits(self.STATE, seen, self.SWITCHED + 365 * DAY) == ()

    def test_on_the_way_back_those_of_the_new_one_are_waited_for(self):
        state = rotation.undo(self.STATE)
        for step in (Step.SWITCH, Step.REISSUE):
            state = rotation.finish(rotation.begin(state, step, NOW + DAY), step, NOW + DAY)
        of_old, of_new = entry("a", NOW), entry("b", NOW + 5 * HOUR)
        running_nodes = frozenset({"b"})
        assert rotation.outstanding(state, [of_old, of_new], running_nodes, NOW + DAY) == ([of_new], [])
        renewed = entry("b", NOW + 2 * DAY)
        assert rotation.outstanding(state, [of_old, of_new, renewed], running_nodes, NOW + 2 * DAY + HOUR) == ([], [])

    def test_an_earlier_one_of_the_other_ca_is_no_renewal(self):
        state = rotation.undo(self.STATE)
        state = rotation.finish(rotation.begin(state, Step.SWITCH, NOW + DAY), Step.SWITCH, NOW + DAY)
        before, held = entry("b", NOW), entry("b", NOW + 5 * HOUR)
        assert rotation.outstanding(state, [before, held], frozenset(), NOW + DAY) == ([held], [])
        assert rotation.outstanding(state, [held, before], frozenset(), NOW + DAY) == ([held], [])


class TestTokens:
    STATE = after(Step.ADD, Step.PUBLISH, Step.SWITCH, target=Target.TOKEN_KEY)

    def test_the_longest_lifetime_passes(self):
        seen = Observed(longest_lifetime=DAY)
        (wait,) = rotation.waits(self.STATE, seen, NOW + 3 * HOUR)
        assert wait.until == NOW + 2 * HOUR + DAY
        assert rotation.waits(self.STATE, seen, NOW + 2 * HOUR + DAY) == ()

    @pytest.mark.parametrize("count, end", [(1, "a/n00; remove"), (10, "a/n09; remove"), (12, "and 2 more; remove")])
    def test_tokens_in_secrets_are_made_anew_first(self, count, end):
        seen = Observed(old_tokens=[f"a/n{number:02}" for number in range(count)])
        (wait,) = rotation.waits(self.STATE, seen, NOW + 3 * HOUR)
        assert end in wait.sentence
        assert wait.until is None


class TestWhoSigned:
    def test_before_any_switch_the_old_one_always_did(self):
        assert rotation.signers_at(after(Step.ADD), NOW) == {"old"}

    def test_around_switches_both(self):
        state = after(Step.ADD, Step.PUBLISH, Step.SWITCH)
        switched = NOW + 2 * HOUR
        found = [rotation.signers_at(state, switched + offset) for offset in (-HOUR, datetime.timedelta(), HOUR)]
        assert found == [{"old"}, {"old", "new"}, {"new"}]


class TestWrittenForm:
    @pytest.mark.parametrize(
        "state",
        [
            State(target=Target.TOKEN_KEY, old="old"),
            rotation.begin(after(Step.ADD), Step.PUBLISH, NOW),
            rotation.undo(after(Step.ADD, Step.PUBLISH, Step.SWITCH)),
        ],
    )
    def test_there_and_back(self, state):
        assert rotation.decode(rotation.encode(state)) == state

    @pytest.mark.parametrize(
        "change",
        [
            {"version": 2},
            {"what": "x"},
            {"old": 1},
            {"doing": "x"},
            {"done": [["add"]]},
            {"done": [["add", "2030-01-01T00:00:00"]]},
            {"done": 1},
            {"signed": [[None, None]]},
            {"turned": "yes"},
            {"more": 1},
        ],
    )
    def test_anything_else_is_refused(self, change):
        document = json.loads(rotation.encode(after(Step.ADD)))
        with pytest.raises(errors.Refused) as caught:
            rotation.decode((json.dumps(document | change, indent=2) + "\n").encode())
        assert caught.value.reason == "BadRotationState"

    @pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff"])
    def test_what_is_no_document_is_refused(self, data):
        with pytest.raises(errors.Refused, match="not the state of a rotation"):
            rotation.decode(data)
