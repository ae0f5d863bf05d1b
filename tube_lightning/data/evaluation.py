"""The text of an evaluation: a user's files as sequences, checked before any model is loaded."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import torch

from tube_lightning.data.files import (
    DOCUMENT_SUFFIXES,
    Paths,
    find_files,
    name_files,
    read_documents,
)
from tube_lightning.data.packing import cut_documents, pack
from tube_lightning.data.prompts import prompted_sequences
from tube_lightning.data.sequences import TokenSequences
from tube_lightning.data.streams import file_kind
from tube_lightning.data.token_files import token_sequences
from tube_lightning.data.tokenizers import TextTokenizer, fitting_tokenizer

_TOKEN_IDS = ".npy"


def evaluation_sequences(
    path: Paths | None,
    tokenizer: TextTokenizer | str,
    *,
    length: int,
    vocab_size: int,
    max_sequences: int | None = None,
    column: str = "text",
    lines: bool = False,
    detokenize: Callable[[str], str] | None = None,
    per_document: bool = False,
    append_eos: bool = True,
    prompt_column: str | None = None,
    completion_column: str | None = None,
    chat_template: bool = False,
) -> TokenSequences:
    """Cut files into sequences: documents as `read_documents` reads them, or token ids.

    ``.npy`` files hold token ids as `token_sequences` reads them; the tokenizer then only names
    what they mean. With a ``prompt_column`` and a ``completion_column`` tables hold prompts, which
    are given, and what is scored behind them: `prompted_sequences`.
    """
    if (prompt_column is None) != (completion_column is None):
        raise ValueError(
            "prompt_column, completion_column: expected both or none, got "
            f"{prompt_column!r} and {completion_column!r}"
        )
    if prompt_column is not None and completion_column is not None:
        return prompted_sequences(
            path,
            tokenizer,
            prompt_column=prompt_column,
            completion_column=completion_column,
            length=length,
            vocab_size=vocab_size,
            max_sequences=max_sequences,
            chat_template=chat_template,
            append_eos=append_eos,
        )
    files = find_files(path, (*DOCUMENT_SUFFIXES, _TOKEN_IDS))
    if any(file_kind(file) == _TOKEN_IDS for file in files):
        _check_all_ids(files, per_document)
        name = tokenizer if isinstance(tokenizer, str) else tokenizer.name
        return token_sequences(
            files, vocab_size, length=length, max_sequences=max_sequences, tokenizer=name
        )
    documents = read_documents(files, column=column, lines=lines)
    return document_sequences(
        documents,
        tokenizer,
        length=length,
        vocab_size=vocab_size,
        max_sequences=max_sequences,
        per_document=per_document,
        append_eos=append_eos,
        source=name_files(files),
        detokenize=detokenize,
    )


def document_sequences(
    documents: Iterable[str],
    tokenizer: TextTokenizer | str,
    *,
    length: int,
    vocab_size: int,
    max_sequences: int | None,
    per_document: bool,
    append_eos: bool,
    source: str,
    detokenize: Callable[[str], str] | None = None,
    begins: Callable[[str], bool] | None = None,
) -> TokenSequences:
    """Tokenise documents for a model of ``vocab_size`` ids; pack them, or keep them apart.

    ``begins`` tells documents, as they are before ``detokenize``, that begin a text of their own
    from those that go on with the one before; None where all do.
    """
    tokenizer = fitting_tokenizer(tokenizer, vocab_size)
    cut = cut_documents if per_document else pack
    texts: list[int] = []  # by document, the text that it is of

    def note_texts() -> Iterator[str]:
        for document in documents:
            is_new = not texts or begins is None or begins(document)
            texts.append((texts[-1] if texts else -1) + is_new)
            yield document if detokenize is None else detokenize(document)

    sequences = cut(
        note_texts(),
        tokenizer,
        length,
        max_sequences=max_sequences,
        append_eos=append_eos,
        source=source,
    )
    if begins is None or sequences.documents is None:
        return sequences
    return replace(sequences, documents=torch.tensor(texts).int()[sequences.documents.long()])


def _check_all_ids(files: list[Path], per_document: bool) -> None:
    """Refuse token ids beside text, and documents asked of token ids."""
    if per_document:
        raise ValueError(f"per_document: expected files of text, got token ids in {files[0]}")
    for file in files:
        if file_kind(file) != _TOKEN_IDS:
            raise ValueError(f"{file}: expected {_TOKEN_IDS} as the other files, or none of them")
