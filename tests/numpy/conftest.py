"""The tests of NumPy capture run without torch: nothing here may import it."""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
