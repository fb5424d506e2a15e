# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The decoder is a module beside the tests, not an installed one."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
