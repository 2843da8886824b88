# SPDX-License-Identifier: Apache-2.0
"""A fence around calls of the library: whatever goes wrong inside becomes this room's refusal, with a reason.

The library reads most parts of a certificate only when they are needed, and no list of its failures is complete.
`UnsupportedGeneralNameType`, `DuplicateExtension` and `InvalidVersion` are no ValueErrors, and a panic of its Rust half
is not even an `Exception`. Where the library fails on what a peer sent, this room must answer with a refusal.

1. This program's own errors pass as they are.
2. Every other exception becomes the refusal. A ValueError, the usual one, adds nothing to its message. Any other adds the
   name of its class, and never its text, which may quote what was read.
3. A panic of the library becomes the refusal, too. What ends a program or a task (KeyboardInterrupt, CancelledError,
   MemoryError) passes.

It judges nothing, and never turns a failure into a yes.
"""

from __future__ import annotations

import types

from handfast import errors

_PANIC = ("pyo3_runtime", "PanicException")


class Fence:
    """`with fence:` around what the library does. It has no state: one instance serves every call."""

    __slots__ = ("_kind", "_message", "_reason")

    def __init__(self, message: str, *, reason: str, kind: type[errors.Refused] = errors.Refused) -> None:
        self._message = message
        self._reason = reason
        self._kind = kind

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        # 1. our own errors pass, and 3. what ends a program
        if kind is None or issubclass(kind, (errors.HandfastError, MemoryError)):
            return
        # 2. every other exception, and 3. a panic of the library, become the refusal
        if issubclass(kind, Exception) or (kind.__module__, kind.__name__) == _PANIC:
            shown = "" if kind is ValueError else f" ({kind.__name__})"
            raise self._kind(self._message + shown, reason=self._reason) from None
