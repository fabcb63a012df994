# What nanobind's stubgen cannot see: C types and functions made by hand.
tatara._core.CompiledFunction:
    \from typing import Any
    class CompiledFunction:
        """What tatara.compile makes of a function."""

        def __init__(
            self,
            function: Any,
            backend: Any = None,
            fullgraph: bool = False,
            self_argument: Any = None,
            dynamic: bool | None = None,
            options: dict[str, Any] | None = None,
            /,
        ) -> None: ...
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
        def __get__(self, instance: Any, owner: Any = None, /) -> Any: ...
        def _report(self) -> dict[str, Any]:
            """What was captured, as plain data."""
        def _look(self, *args: Any) -> tuple[str | None, Any, bool]:
            """What a call would do, without doing it: a problem or None, and a result of placeholders."""
        def _note(self, reason: str, /) -> None:
            """Adds a reason why something runs in eager to the report."""
        def _reset(self) -> None:
            """Forgets every entry."""
        @property
        def _tatara_function(self) -> Any: ...
        @property
        def _tatara_self(self) -> Any: ...
        __dict__: dict[str, Any]
        __name__: str
        __qualname__: str
        __wrapped__: Any

tatara._core.is_compiling:
    def is_compiling() -> bool:
        """Whether Tatara is tracing right now; False in eager."""

tatara._core.call_alone:
    def call_alone(callable: Any, *args: Any) -> Any:
        """Calls a function of arrays past the trace that is open. Compiled code calls it again, and compares what it gives."""

tatara._core.call_apart:
    def call_apart(why: str, callable: Any, *args: Any) -> Any:
        """Calls a function as if no trace were open. A graph breaks there for the reason given."""

tatara._core.apart_in_memory:
    def apart_in_memory(tensors: list[Any]) -> bool:
        """Whether no two tensors of a list share memory; False, too, where one's memory is not known."""
