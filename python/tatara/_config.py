"""`tatara.config`: the options of the core as attributes."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator
from typing import Any

from tatara import _core
from tatara._errors import InvalidArgument


def suggestion(word: str, known: list[str]) -> str:
    """` (did you mean 'x'?)`, or what there is when nothing is close."""
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else f"; there are: {', '.join(known)}"


def _names() -> list[str]:
    return [name for name, *_ in _core.option_names()]


def _checked(name: str) -> str:
    names = _names()
    if name not in names:
        raise InvalidArgument(f"unknown option {name!r}{suggestion(name, names)}")
    return name


def checked_value(name: str, value: Any) -> Any:
    """A value of the option's own type that it takes."""
    kind = type(_core.option(name))
    if kind is str and hasattr(value, "__fspath__"):
        value = str(value)
    if type(value) is not kind:
        raise InvalidArgument(f"option {name} takes {_core.option_takes(name)}, not {type(value).__name__} {value!r}")
    _core.check_option(name, value)
    return value


class Config:
    """Options by name. `config.cache_dir = "/x"` sets, `config.reset("cache_dir")` goes back to environment or default,
    and `with config.patch(verify=True):` sets for the length of a block. Options are global to the process.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        # hasattr and getattr with a default want an AttributeError, people want a suggestion: it is both.
        if name not in _names():
            raise UnknownOption(f"unknown option {name!r}{suggestion(name, _names())}")
        return _core.option(name)

    def __setattr__(self, name: str, value: Any) -> None:
        _checked(name)
        _core.set_option(name, checked_value(name, value))

    def __delattr__(self, name: str) -> None:
        self.reset(name)

    def __dir__(self) -> list[str]:
        return [*_names(), "patch", "reset", "as_dict"]

    def __repr__(self) -> str:
        return f"tatara.config({', '.join(f'{name}={value!r}' for name, value in self.as_dict().items())})"

    def as_dict(self) -> dict[str, Any]:
        """Every option and its present value."""
        return {name: _core.option(name) for name in _names()}

    def reset(self, name: str | None = None) -> None:
        """Back to the environment or the default; without a name, every option."""
        for each in _names() if name is None else [_checked(name)]:
            _core.reset_option(each)

    @contextlib.contextmanager
    def patch(self, **values: Any) -> Iterator[None]:
        """Sets options inside the block (or the decorated function) and restores what was there before."""
        before = {name: _core.option(_checked(name)) for name in values}
        try:
            for name, value in values.items():
                setattr(self, name, value)
            yield
        finally:
            for name, value in before.items():
                _core.set_option(name, value)


class UnknownOption(InvalidArgument, AttributeError):
    """Reading an option that there is not."""


config = Config()
