# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Helpers of scripts/plain-english and scripts/same-tokens."""
