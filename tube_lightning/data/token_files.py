"""Token ids of local files: what `sample.py` writes, and arrays of other programs."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64

from tube_lightning.data.files import Paths, find_files, name_files
from tube_lightning.data.sequences import AtMost, TokenSequences
from tube_lightning.data.tables import TABLE_SUFFIXES, read_column

_SUFFIXES = (".npy", *TABLE_SUFFIXES)


def token_sequences(
    paths: Paths | None,
    vocab_size: int,
    *,
    length: int | None = None,
    max_sequences: int | None = None,
    column: str = "tokens",
    tokenizer: str = "token ids",
) -> TokenSequences:
    """Read sequences of token ids, one a row, all of one length.

    ``.npy`` files hold integers ``[sequences, length]``; ``.jsonl``, ``.parquet`` and ``.arrow``
    files a list of integers a row in ``column``. ``tokenizer`` names what the ids mean. With a
    ``length``, sequences of any other are refused (``AtMost``: longer ones), and ``.npy`` files may
    also hold one stream of integers, which is cut into sequences.
    """
    if max_sequences is not None and max_sequences < 1:
        raise ValueError(f"max_sequences: expected at least 1, got {max_sequences}")
    files = find_files(paths, _SUFFIXES)
    arrays = [_read_ids(path, column, streams=length is not None) for path in files]
    for path, ids in zip(files, arrays, strict=True):
        _check_ids(path, ids, vocab_size)
    num_dropped = 0
    if length is not None and all(ids.ndim == 1 for ids in arrays):
        stream = np.concatenate(arrays)
        num_dropped = stream.size % length
        rows = stream[: stream.size - num_dropped].reshape(-1, length)
        if not len(rows):
            raise ValueError(
                f"{name_files(files)}: expected at least one full sequence of {length} tokens, "
                f"got {stream.size} tokens in all"
            )
    else:
        _check_lengths(files, arrays, length)
        rows = np.concatenate(arrays)
    if max_sequences is not None and len(rows) >= max_sequences:
        rows, num_dropped = rows[:max_sequences], 0
    return TokenSequences(torch.from_numpy(rows), name_files(files), tokenizer, num_dropped)


def _read_ids(path: Path, column: str, *, streams: bool) -> Int64[np.ndarray, "*shape"]:
    if path.suffix == ".npy":
        return _read_array(path, streams=streams)
    rows = [_row(path, number, value) for number, value in enumerate(read_column(path, column))]
    if not rows:
        raise ValueError(f"{path}: expected at least one sequence, got none")
    for number, row in enumerate(rows):
        if row.size != rows[0].size:
            raise ValueError(
                f"{path}: expected sequences of one length, got {rows[0].size} tokens in row 0 "
                f"and {row.size} in row {number}"
            )
    return np.stack(rows)


def _read_array(path: Path, *, streams: bool) -> Int64[np.ndarray, "*shape"]:
    try:
        ids: np.ndarray = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{path}: cannot be read as npy ({error})") from error
    right_axes = ids.ndim == 2 or (streams and ids.ndim == 1)
    if not right_axes or ids.dtype.kind not in "iu" or ids.size == 0:
        stream = " or one stream [tokens]" * streams
        raise ValueError(
            f"{path}: expected integers [sequences, length]{stream}, got {ids.dtype} {ids.shape}"
        )
    return ids.astype(np.int64, copy=False)


def _row(path: Path, number: int, value: object) -> Int64[np.ndarray, " tokens"]:
    if not isinstance(value, list) or not value or any(type(i) is not int for i in value):
        raise ValueError(f"{path}: expected a list of integers, got {value!r:.40} in row {number}")
    return np.array(value, dtype=np.int64)


def _check_lengths(
    files: Sequence[Path], arrays: Sequence[Int64[np.ndarray, "*shape"]], length: int | None
) -> None:
    """Refuse sequences of another length than is given, or than the first file has."""
    own = arrays[0].shape[-1]
    wanted = own if length is None or (isinstance(length, AtMost) and own <= length) else length
    origin = " as in the first file" if wanted == own and wanted != length else ""
    for path, ids in zip(files, arrays, strict=True):
        if ids.ndim == 1:
            raise ValueError(f"{path}: expected integers [sequences, length] as in other files")
        if ids.shape[1] != wanted:
            raise ValueError(
                f"{path}: expected sequences of {wanted} tokens{origin}, got {ids.shape[1]}"
            )


def _check_ids(path: Path, ids: Int64[np.ndarray, "*shape"], vocab_size: int) -> None:
    rows = np.atleast_2d(ids)
    outside = np.argwhere((rows < 0) | (rows >= vocab_size))
    if outside.size:
        sequence, position = outside[0]
        where = f"in sequence {sequence} " * (ids.ndim == 2)
        raise ValueError(
            f"{path}: expected ids in 0..{vocab_size - 1}, got {rows[sequence, position]} "
            f"{where}at position {position}"
        )
