"""What a checkpoint of Spark's says of a query that reads topics: how far it has got for good."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ...engine.errors import CorruptionError
from ..offsets import positions_of

if TYPE_CHECKING:
    from pathlib import Path

    from ..offsets import Positions

__all__ = ["committed", "query_id"]


def committed(checkpoint: Path) -> tuple[int, Positions] | None:
    """The last micro-batch that is committed, and the next number of each source behind it; None before the
    first.

    Spark writes offsets/N before it runs the batch and commits/N when the sink has it, each by a rename.

    Raises:
        CorruptionError: a batch is committed, and its offsets are not those of this data source.
    """
    commits = checkpoint / "commits"
    done = [int(path.name) for path in commits.iterdir() if path.name.isdigit()] if commits.is_dir() else []
    if not done:
        return None
    offsets = checkpoint / "offsets" / str(max(done))
    try:
        return max(done), positions_of(offsets.read_text().splitlines()[-1])
    except (OSError, ValueError, IndexError) as error:
        raise _corrupt(checkpoint, offsets, error) from None


def query_id(checkpoint: Path) -> str:
    """The id of the query whose checkpoint this is: the same over all its runs. "" before the first one.

    Raises:
        CorruptionError: its file says something else.
    """
    metadata = checkpoint / "metadata"
    try:
        return str(json.loads(metadata.read_text())["id"])
    except FileNotFoundError:
        return ""
    except (ValueError, KeyError, TypeError) as error:
        raise _corrupt(checkpoint, metadata, error) from None


def _corrupt(checkpoint: Path, file: Path, error: Exception) -> CorruptionError:
    return CorruptionError(
        f"{checkpoint} is no checkpoint of a query that reads topics: {file.name}: {error}",
        hint="name another one, or remove it to begin anew",
    )
