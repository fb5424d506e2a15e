# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""usiw and its peers in the same run: what scripts/bench is made of."""
