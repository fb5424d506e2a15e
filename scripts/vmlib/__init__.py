# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The host side of the guest harness: what scripts/vm, scripts/demo and scripts/compare share."""
