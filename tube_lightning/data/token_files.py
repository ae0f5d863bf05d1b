"""Token ids of local files: what `sample.py` writes, and arrays of other programs."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64

from tube_lightning.data.blocks import TokenBlocks
from tube_lightning.data.files import TABLE_SUFFIXES, Paths, find_files, name_files, read_column

_SUFFIXES = (".npy", *TABLE_SUFFIXES)


def token_blocks(
    paths: Paths, vocab_size: int, *, column: str = "tokens", tokenizer: str = "token ids"
) -> TokenBlocks:
    """Read sequences of token ids, one a row, all of one length.

    ``.npy`` files hold integers ``[sequences, length]``; ``.jsonl``, ``.parquet`` and ``.arrow``
    files a list of integers a row in ``column``. ``tokenizer`` names what the ids mean.
    """
    files = find_files(paths, _SUFFIXES)
    arrays = [_read_ids(path, column) for path in files]
    for path, ids in zip(files, arrays, strict=True):
        _check_ids(path, ids, vocab_size, arrays[0].shape[1])
    tokens = torch.from_numpy(np.concatenate(arrays).astype(np.int64, copy=False))
    return TokenBlocks(tokens, name_files(files), tokenizer)


def _read_ids(path: Path, column: str) -> Int64[np.ndarray, "sequences length"]:
    if path.suffix == ".npy":
        return _read_array(path)
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


def _read_array(path: Path) -> Int64[np.ndarray, "sequences length"]:
    try:
        ids: np.ndarray = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{path}: cannot be read as npy ({error})") from error
    if ids.ndim != 2 or ids.dtype.kind not in "iu" or ids.size == 0:
        raise ValueError(
            f"{path}: expected integers [sequences, length], got {ids.dtype} {ids.shape}"
        )
    return ids.astype(np.int64, copy=False)


def _row(path: Path, number: int, value: object) -> Int64[np.ndarray, " tokens"]:
    if not isinstance(value, list) or not value or any(type(i) is not int for i in value):
        raise ValueError(f"{path}: expected a list of integers, got {value!r:.40} in row {number}")
    return np.array(value, dtype=np.int64)


def _check_ids(
    path: Path, ids: Int64[np.ndarray, "sequences length"], vocab_size: int, length: int
) -> None:
    if ids.shape[1] != length:
        raise ValueError(
            f"{path}: expected sequences of {length} tokens as in the first file, "
            f"got {ids.shape[1]}"
        )
    outside = np.argwhere((ids < 0) | (ids >= vocab_size))
    if outside.size:
        sequence, position = outside[0]
        raise ValueError(
            f"{path}: expected ids in 0..{vocab_size - 1}, got {ids[sequence, position]} "
            f"in sequence {sequence} at position {position}"
        )
