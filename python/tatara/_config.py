"""`tatara.config`: the options of the core as attributes."""

from __future__ import annotations

from typing import Any

from tatara import _core


class Config:
    """Reads and sets options by name; `reset(name)` goes back to the environment or the default."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _core.option(name)

    def __setattr__(self, name: str, value: Any) -> None:
        _core.set_option(name, value)

    def __dir__(self) -> list[str]:
        return [name for name, _ in _core.option_names()]

    def reset(self, name: str) -> None:
        _core.reset_option(name)


config = Config()
