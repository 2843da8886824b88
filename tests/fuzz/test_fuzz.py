# SPDX-License-Identifier: Apache-2.0
"""The targets keep their promises: on every input that is kept, and on some thousand that are made from them, always the same ones."""

from __future__ import annotations

import pytest

from tests.fuzz import __main__ as fuzzing
from tests.fuzz import mutations, promises, table

NAMES = sorted(table.TARGETS)


@pytest.mark.parametrize("name", NAMES)
def test_every_input_that_is_kept_is_read_or_refused(name):
    target = table.TARGETS[name]
    run, inputs = target.load(), target.inputs()
    assert inputs
    for data in inputs:
        promises.bounded(run, data)


def test_the_corpus_is_small():
    assert sum(target.corpus.stat().st_size for target in table.TARGETS.values()) < 200_000
    assert {path.stem for path in table.CORPUS.iterdir()} == set(NAMES)


# The same seed and the same number every time: a submission does not fail by luck. `make fuzz` looks for more.
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_found_in_the_first_inputs_of_a_fixed_seed(name, tmp_path):
    target = table.TARGETS[name]
    code, text = fuzzing.fuzz(target, f"-runs={target.runs}", f"-artifact_prefix={tmp_path}/")
    assert code == 0, text
    assert "number_of_executed_units" in text


def test_a_promise_that_is_broken_is_seen():
    def step() -> None:
        pass

    def endless(data: bytes) -> None:
        for _ in range(promises.CALLS + promises.CALLS_PER_BYTE * len(data) + 1):
            step()

    with pytest.raises(promises.Broken, match="3 bytes take"):
        promises.bounded(endless, b"abc")
    with pytest.raises(KeyError):
        promises.refusing(lambda data: {b"a": 1}[data])(b"")


def test_a_change_of_json_is_json_and_depends_on_the_seed_alone():
    def never(data: bytes, size: int) -> bytes:
        return b""

    data = b'x{"a":[1,{"b":null}],"c":"d"}'
    changed = [mutations.json_change(data, seed, 4096, never) for seed in range(50)]
    assert changed == [mutations.json_change(data, seed, 4096, never) for seed in range(50)]
    assert len(set(changed)) > 10
    assert all(text[:1] == b"x" for text in changed if text)
