"""`tatara.explain`: a call, and the report of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tatara import _core
from tatara._api import compile as tatara_compile
from tatara._errors import InvalidArgument
from tatara.report._history import kernel_history
from tatara.report._report import Report, parts_of, report_of


def explain(function: Any, **options: Any) -> Callable[..., Report]:
    """`explain(fn)(*args)` compiles, runs and reports. An already compiled function is reported as it is: what it
    captured before, and this call. Keywords are those of `tatara.compile`.

    New graphs are run a few times more on the same inputs to be measured; the results of these runs are dropped, inputs
    that they would write to are copied first.
    """
    if parts_of(function):
        if options:
            raise InvalidArgument("the function is compiled already: give the options to tatara.compile")
        compiled = function
    else:
        compiled = tatara_compile(function, **options)
        if not parts_of(compiled):
            raise InvalidArgument(f"nothing to explain: {function!r} is not Python code that Tatara compiles")

    def run(*args: Any, **kwargs: Any) -> Report:
        with kernel_history() as history:
            before = _core.set_explaining(2)
            try:
                result = compiled(*args, **kwargs)
            finally:
                _core.set_explaining(before)
        return report_of(compiled, result, history)

    return run
