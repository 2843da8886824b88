# SPDX-License-Identifier: Apache-2.0
"""Real clients against a real `handfast up`: nothing here is simulated."""
