# SPDX-License-Identifier: Apache-2.0
"""What the console shows: sentences, rows and drawings, decided.

Holds: One module for each page: what it shows of which objects, in which order, filtered and in ranges.
Imports: api, errors, pki, rules.
Never: It reads nothing, draws nothing, and knows neither HTML nor a browser.
Start: `nodes.py`.
"""
