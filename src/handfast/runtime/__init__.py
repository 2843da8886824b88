# SPDX-License-Identifier: Apache-2.0
"""What every process needs: clock, tasks, files, addresses, TLS contexts, back-off, and child processes.

Holds: The only room that asks for the time, sleeps or starts tasks.
Imports: errors, rules.
Never: It knows nothing of Kubernetes.
Start: `clock.py` and `tasks.py`.
"""
