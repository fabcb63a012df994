"""The Python array API standard (2025.12) over torch tensors.

    import tatara.array_api as xp

    xp.floor_divide(xp.asarray([-7, 7]), 2)

Functions take and give plain tensors on any device. They may stand in compiled code and have gradients. Given NumPy arrays,
they give NumPy arrays. `tatara.array_api.numpy` is the namespace over NumPy arrays alone, and `tatara.array_api.arrays` has the
same functions over objects whose operators are the standard's as well.

torch is imported with the first name that is looked up here.
"""

from __future__ import annotations

import sys

from tatara.array_api._names import ALL, VERSION

__array_api_version__ = VERSION


def _load() -> None:
    from tatara.array_api import _tensors

    globals().update(_tensors.namespace())


def __getattr__(name: str) -> object:
    if name not in ALL:
        raise AttributeError(f"module 'tatara.array_api' has no attribute {name!r}")
    _load()
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *ALL})


# Where torch is loaded anyway, nothing is left to do at the first look-up, which may be in compiled code.
if "torch" in sys.modules:
    _load()

__all__ = [*ALL, "__array_api_version__"]
