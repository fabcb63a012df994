# The extension module. Its functions are documented where the package wraps them.
from typing import Any

def __getattr__(name: str) -> Any: ...
