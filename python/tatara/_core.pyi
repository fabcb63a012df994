# Made by tools/make_stubs.py.
from typing import Any

class HistoryRecorder:
    """Receives an event for every compilation and launch."""

    def __init__(self) -> None: ...
    def start(self) -> None:
        """Listens from now on."""

    def stop(self) -> None:
        """Listens no longer; the events stay."""

    def size(self) -> int:
        """Number of events so far."""

    def events(self, first: int = 0) -> list[dict[str, Any]]:
        """The events from number `first` on, as dicts."""

def machine() -> dict[str, object]:
    """What code is made for: vectors, CPU, LLVM, threads. Loads LLVM."""

def cache() -> dict[str, Any]:
    """The disk cache: place, size, counters, why it is not used."""

def clear_cache() -> None:
    """Removes every entry of the disk cache."""

def llvm_loaded() -> bool:
    """Whether LLVM was loaded in this process."""

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

def stats() -> dict[str, int]:
    """Counters since the last reset."""

def install_node(node: object, apply: object) -> None:
    """Gives the class of nodes the core's methods; `apply` is torch's own."""

def call_stage(stage: object, inputs: list[object], given: object) -> list[object] | None:
    """Outputs as eager gives them, or None for inputs that do not fit."""

def known_calls() -> list[tuple[str, str, str, str, bool, bool]]:
    """Rows of known_calls.def, and whether each is loaded and found."""

def call_counts() -> tuple[int, int]:
    """Traced calls so far, and how often a callable was looked up."""

def reset() -> None:
    """Forgets every captured graph."""

def disable(change: int) -> None:
    """Nests: 1 to disable in this thread, -1 to end that."""

def set_llvm_path(path: str) -> None:
    """Where libllvmlite.so is."""

def is_compiling() -> bool:
    """Whether Tatara is tracing right now; False in eager."""

def call_alone(callable: Any, *args: Any) -> Any:
    """Calls a function of arrays past the trace that is open. Compiled code calls it again, and compares what it gives."""

def call_apart(why: str, callable: Any, *args: Any) -> Any:
    """Calls a function as if no trace were open. A graph breaks there for the reason given."""

def apart_in_memory(tensors: list[Any]) -> bool:
    """Whether no two tensors of a list share memory; False, too, where one's memory is not known."""

def set_explaining(level: int) -> int:
    """0 off, 1 keep texts, 2 also measure; returns the old level."""

def set_unsupported_type(type: type[BaseException]) -> None:
    """The exception of graph breaks under fullgraph."""

def option(name: str) -> bool | int | str:
    """The present value."""

def set_option(name: str, value: bool | int | str) -> None:
    """For the whole process."""

def check_option(name: str, value: bool | int | str) -> None:
    """Raises what set_option would."""

def check_environment() -> None:
    """Reads all variables of the environment."""

def option_takes(name: str) -> str:
    """What the option takes, in words."""

def reset_option(name: str) -> None:
    """Back to the environment or the default."""

def option_names() -> list[tuple[str, str, str]]:
    """Name, text and scope ("compilation" or "process") of every option."""
