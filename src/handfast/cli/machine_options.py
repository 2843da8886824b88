# SPDX-License-Identifier: Apache-2.0
"""Options that several commands of `handfast machine` have. It reads nothing."""

from __future__ import annotations

from collections.abc import Callable

import click


def namespace_option(
    sentence: str = "The namespace of the Machine, where several have this name.", default: str = ""
) -> Callable[[click.decorators.FC], click.decorators.FC]:
    """Adds --namespace; the sentence says what it is for."""
    return click.option("--namespace", default=default, show_default=bool(default), help=sentence)
