# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Helpers of scripts/plain-english, scripts/same-tokens and scripts/format."""
