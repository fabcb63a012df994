"""What the namespace says about itself."""

from __future__ import annotations

import torch

from tatara.array_api._torch import types


class Info:
    """Inspection of the namespace over tensors."""

    def capabilities(self) -> dict[str, bool | int | None]:
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> torch.device:
        return torch.get_default_device()

    def default_dtypes(self, *, device: torch.device | str | int | None = None) -> dict[str, torch.dtype]:
        own = torch.get_default_dtype()
        return {
            "real floating": own,
            "complex floating": types.complex_of(own),
            "integral": torch.int64,
            "indexing": torch.int64,
        }

    def dtypes(
        self, *, device: torch.device | str | int | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, torch.dtype]:
        goal = torch.get_default_device() if device is None else torch.device(device)
        # The Metal back end has no double precision.
        lacking = {torch.float64, torch.complex128} if goal.type == "mps" else set()
        return {
            name: dtype
            for name, dtype in types.NAMES.items()
            if dtype not in lacking and (kind is None or types.isdtype(dtype, kind))
        }

    def devices(self) -> tuple[torch.device, ...]:
        """Processors that are there."""
        found = [torch.device("cpu")]
        if torch.cuda.is_available():
            found += [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
        if torch.backends.mps.is_available():
            found.append(torch.device("mps"))
        return tuple(found)


def array_namespace_info() -> Info:
    return Info()
