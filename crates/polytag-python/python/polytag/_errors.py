"""The exceptions of polytag."""

from __future__ import annotations


class PolytagError(Exception):
    """Any failure of polytag."""


class InputError(PolytagError, ValueError):
    """Something given cannot be used; the message says what to change."""


class InputTypeError(InputError, TypeError):
    """Something given is of another type than is needed; the message says which."""


class ModelError(InputError):
    """A model folder is missing, damaged, or of a kind that this version does not know."""


class InternalError(PolytagError, RuntimeError):
    """A promise of polytag is broken: a fault of the program, not of what it was given."""


class PolytagWarning(UserWarning):
    """Something worth knowing, though the work goes on."""
