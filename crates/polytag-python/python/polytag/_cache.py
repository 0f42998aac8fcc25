"""Where polytag keeps encoders and compiled kernels: the same folder as the command line's."""

from __future__ import annotations

import os
from pathlib import Path


def root(named: str | os.PathLike[str] | None = None) -> str | None:
    """The folder that was named, or the one that the environment asks for; none where there is no home."""
    if named is not None:
        return os.fspath(named)
    if folder := os.environ.get("POLYTAG_CACHE"):
        return folder
    # The XDG rules want a path that is not absolute ignored.
    users = os.environ.get("XDG_CACHE_HOME")
    if not users or not os.path.isabs(users):
        users = os.environ.get("LOCALAPPDATA") or (
            str(Path(os.environ["HOME"], ".cache")) if os.environ.get("HOME") else None
        )
    return str(Path(users, "polytag")) if users else None
