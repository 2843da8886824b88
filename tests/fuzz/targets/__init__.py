# SPDX-License-Identifier: Apache-2.0
"""One module for each kind of input: `run(data)` returns, or raises what nobody promised."""
