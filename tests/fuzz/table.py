# SPDX-License-Identifier: Apache-2.0
"""The targets: which module, what of Handfast is watched for new paths, how often one runs in CI. It imports none of them.

Whatever is watched has to be imported for the first time when atheris watches, and watching all of it takes seconds.
"""

from __future__ import annotations

import ast
import importlib
import pathlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tests.fuzz import promises

CORPUS: Final = pathlib.Path(__file__).parent / "corpus"


@dataclass(frozen=True, slots=True)
class Target:
    """`runs`: so many inputs in CI, at most three seconds of a processor. `is_json`: inputs are mostly JSON behind a first byte."""

    name: str
    watched: tuple[str, ...]
    runs: int
    is_json: bool = False

    def load(self) -> promises.Run:
        """What runs one input, within its promises."""
        module = importlib.import_module(f"tests.fuzz.targets.{self.name}")
        run: promises.Run = module.run
        return run

    @property
    def corpus(self) -> pathlib.Path:
        return CORPUS / f"{self.name}.txt"

    def inputs(self) -> list[bytes]:
        """The inputs that are kept, one in each line, as Python writes bytes."""
        lines = self.corpus.read_text().splitlines() if self.corpus.exists() else []
        return [ast.literal_eval(line) for line in lines]

    def keep(self, inputs: Iterable[bytes]) -> None:
        """Write these down in place of those."""
        self.corpus.write_text(
            "".join(f"{data!r}\n" for data in sorted(set(inputs), key=lambda data: (len(data), data)))
        )


TARGETS: Final = {
    target.name: target
    for target in (
        Target("cel_expressions", ("handfast.api.cel", "handfast.api.custom"), 2000),
        Target("certificate_requests", ("handfast.pki",), 30_000),
        Target("cluster_info", ("handfast.bootstrap",), 8000),
        Target(
            "console_objects", ("handfast.rules.console", "handfast.rules.nodes", "handfast.console.fleet"), 1500, True
        ),
        Target("field_owners", ("handfast.api.merging",), 1200, True),
        Target("json_bodies", ("handfast.api.codec", "handfast.api.schema", "handfast.api.validation"), 3500, True),
        Target("jsonpaths", ("handfast.api.jsonpath",), 15_000),
        Target("machine_files", ("handfast.rules.machine_config",), 20_000, True),
        Target("patches", ("handfast.api.merging", "handfast.apiserver.bodies"), 3500, True),
        Target("protobuf_bodies", ("handfast.api.codec", "handfast.api.schema"), 3000),
        Target("proxy_headers", ("handfast.rules.proxy_protocol",), 50_000),
        Target(
            "query_strings",
            ("handfast.apiserver.request", "handfast.apiserver.verbs", "handfast.api.selectors"),
            10_000,
        ),
        Target("selectors", ("handfast.api.selectors",), 10_000),
        Target("structural_schemas", ("handfast.api.custom", "handfast.api.openapi"), 4000, True),
        Target("token_secrets", ("handfast.bootstrap",), 8000, True),
        Target("yaml_bodies", ("handfast.api.codec",), 7000),
    )
}
