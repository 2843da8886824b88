# SPDX-License-Identifier: Apache-2.0
"""Inputs of strangers, changed at random: what each reader promises is said in `targets`, how to run them in docs/fuzzing.md."""
