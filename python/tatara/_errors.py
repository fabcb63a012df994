"""The exceptions that Tatara raises."""

from __future__ import annotations


class Error(RuntimeError):
    """Base of everything that Tatara raises itself."""


class InvalidArgument(Error, ValueError):
    """The API was called wrongly."""


class Unsupported(Error):
    """The program needs a graph break, and `fullgraph=True` forbids it."""


class CompilationError(Error):
    """Generated code was refused, or code on disk is damaged."""


class InternalError(Error):
    """A bug in Tatara."""
