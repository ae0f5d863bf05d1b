"""Prompts and their completions: what is given, and what is scored."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64

from tube_lightning.data.chats import render_chat
from tube_lightning.data.files import Paths, find_files, name_files
from tube_lightning.data.sequences import TokenSequences
from tube_lightning.data.tables import TABLE_SUFFIXES, read_column
from tube_lightning.data.tokenizers import TextTokenizer, fitting_tokenizer


def prompted_sequences(
    path: Paths | None,
    tokenizer: TextTokenizer | str,
    *,
    prompt_column: str,
    completion_column: str,
    length: int,
    vocab_size: int,
    max_sequences: int | None = None,
    chat_template: bool = False,
    append_eos: bool = True,
) -> TokenSequences:
    """Read a prompt and its completion from each row of tables; the prompt is given.

    Each row is a sequence of its own, and a document. Prompts are text, or with ``chat_template``
    also lists of messages (role and content), which the tokenizer's template turns into text, up to
    where the answer begins. The two are tokenised apart, so that no token is of both. A row that is
    longer than ``length`` is left out whole, and its tokens are counted in ``num_dropped``.
    """
    files = find_files(path, TABLE_SUFFIXES)
    tokenizer = fitting_tokenizer(tokenizer, vocab_size)
    end = [tokenizer.eos_id] if append_eos and tokenizer.eos_id is not None else []
    rows: list[tuple[int, np.ndarray, np.ndarray]] = []
    num_dropped = 0
    for where, prompt, completion in _read_pairs(files, prompt_column, completion_column):
        text = render_chat(tokenizer, prompt) if chat_template else prompt
        if not isinstance(text, str) or not isinstance(completion, str):
            raise ValueError(
                f"{where}: expected text in {prompt_column!r} and {completion_column!r}; lists of "
                "messages need chat_template=true"
            )
        given, scored = tokenizer.encode(text).ids, tokenizer.encode(completion)
        if not given.size or not scored.ids.size:
            raise ValueError(f"{where}: expected at least one token of each, got none of one")
        ids = np.concatenate([given, scored.ids, np.array(end, dtype=np.int64)])
        if ids.size > length:
            num_dropped += ids.size
            continue
        num_bytes = np.zeros_like(ids)
        num_bytes[given.size : given.size + scored.ids.size] = scored.num_bytes
        rows.append((given.size, ids, num_bytes))
        if len(rows) == max_sequences:
            break
    if not rows:
        raise ValueError(
            f"{name_files(files)}: expected a row of at most {length} tokens, got none of "
            f"{num_dropped} tokens in all"
        )
    longest = max(ids.size for _, ids, _ in rows)
    documents = torch.arange(len(rows), dtype=torch.int32)[:, None].expand(-1, longest)
    return TokenSequences(
        torch.from_numpy(_pad([ids for _, ids, _ in rows], longest)),
        name_files(files),
        tokenizer.name,
        num_dropped,
        lengths=torch.tensor([ids.size for _, ids, _ in rows]),
        token_bytes=torch.from_numpy(_pad([counts for *_, counts in rows], longest)).int(),
        documents=documents.contiguous(),
        decode=tokenizer.decode,
        num_given=torch.tensor([given for given, _, _ in rows]),
    )


def _read_pairs(
    files: Sequence[Path], prompt_column: str, completion_column: str
) -> Iterator[tuple[str, Any, Any]]:
    """Yield where a row is, its prompt and its completion."""
    for file in files:
        both = zip(
            read_column(file, prompt_column), read_column(file, completion_column), strict=True
        )
        for number, (prompt, completion) in enumerate(both):
            yield f"{file}: row {number}", prompt, completion


def _pad(rows: Sequence[np.ndarray], length: int) -> Int64[np.ndarray, "sequences length"]:
    padded = np.zeros((len(rows), length), dtype=np.int64)
    for number, row in enumerate(rows):
        padded[number, : row.size] = row
    return padded
