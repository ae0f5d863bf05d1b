"""The benchmarks that diffusion language models are compared on, by the names people type."""

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from tube_lightning.data.detokenizers import (
    detokenize_lambada,
    detokenize_lm1b,
    detokenize_ptb,
    detokenize_scientific_papers,
    detokenize_wikitext,
)
from tube_lightning.data.evaluation import document_sequences
from tube_lightning.data.files import Paths, find_files, last_documents, name_files, read_documents
from tube_lightning.data.sequences import TokenSequences
from tube_lightning.data.tokenizers import TextTokenizer

_ROWS_A_BATCH = 1024


@dataclass(frozen=True)
class Corpus:
    """Where a benchmark's text is, and how its documents become ordinary text.

    ``hub`` is a repository of the data hub, ``files`` those of its files (parquet) that hold the
    split, so that no other split is downloaded. A document is a row of these, or a line of a text
    file where ``lines``. ``last`` keeps that many documents at the end. Rows of one text are not
    independent: ``begins`` tells those that begin a text of their own, where not all do.
    """

    hub: str
    files: str
    revision: str | None = None
    column: str = "text"
    lines: bool = True
    last: int | None = None
    detokenize: Callable[[str], str] | None = None
    append_eos: bool = False
    begins: Callable[[str], bool] | None = None


def _is_title(line: str) -> bool:
    """Tell the title of an article of WikiText, ``= Title =``, from those of its sections."""
    return re.fullmatch(r"\s*= [^=].* =\s*", line) is not None


def _never(_: str) -> bool:
    return False


_EXPORTED = "refs/convert/parquet"  # what the hub makes of repositories that are loading scripts
_LM1B = Corpus("dvruette/lm1b", "**/test*.parquet", detokenize=detokenize_lm1b, append_eos=True)

CORPORA = {
    "openwebtext-split": Corpus(
        "Skylion007/openwebtext",
        "**/train-*.parquet",
        lines=False,
        last=100_000,
        append_eos=True,
    ),
    "lm1b-wrap": _LM1B,
    "lm1b-gpt2": _LM1B,
    "ptb": Corpus(
        "ptb-text-only/ptb_text_only",
        "penn_treebank/validation/*.parquet",
        revision=_EXPORTED,
        column="sentence",
        detokenize=detokenize_ptb,
        begins=_never,  # sentences in a row, of articles whose borders are lost
    ),
    "wikitext2": Corpus(
        "Salesforce/wikitext",
        "wikitext-2-raw-v1/validation-*.parquet",
        detokenize=detokenize_wikitext,
        begins=_is_title,
    ),
    "wikitext103": Corpus(
        "Salesforce/wikitext",
        "wikitext-103-raw-v1/validation-*.parquet",
        detokenize=detokenize_wikitext,
        begins=_is_title,
    ),
    "lambada": Corpus(
        "EleutherAI/lambada_openai", "default/test/*.parquet", detokenize=detokenize_lambada
    ),
    "ag_news": Corpus("fancyzhx/ag_news", "data/test-*.parquet"),
    "scientific_papers_arxiv": Corpus(
        "ccdv/arxiv-summarization",
        "document/validation-*.parquet",
        column="article",
        detokenize=detokenize_scientific_papers,
    ),
    "scientific_papers_pubmed": Corpus(
        "ccdv/pubmed-summarization",
        "document/validation-*.parquet",
        column="article",
        detokenize=detokenize_scientific_papers,
    ),
}


def corpus_sequences(
    name: str,
    tokenizer: TextTokenizer | str,
    *,
    length: int,
    vocab_size: int,
    max_sequences: int | None = None,
    path: Paths | None = None,
    column: str | None = None,
    per_document: bool = False,
    append_eos: bool | None = None,
) -> TokenSequences:
    """Cut a benchmark into sequences: local files, a local copy of its repository, or the hub's.

    Blank lines are no documents. ``column`` and ``append_eos`` replace those of the corpus.
    """
    corpus = find_corpus(name)
    folder = _folder(path)
    column = corpus.column if column is None else column
    if path is None or folder is not None:
        place = corpus.hub if folder is None else str(folder)
        texts = _repository_documents(name, corpus, folder, column)
    else:
        files = find_files(path)
        place = name_files(files)
        texts = _file_documents(corpus, files, column)
    documents = (text for text in texts if text.strip())
    return document_sequences(
        documents,
        tokenizer,
        length=length,
        vocab_size=vocab_size,
        max_sequences=max_sequences,
        per_document=per_document,
        append_eos=corpus.append_eos if append_eos is None else append_eos,
        source=f"{name} ({place})",
        detokenize=corpus.detokenize,
        begins=corpus.begins,
    )


def find_corpus(name: str) -> Corpus:
    """Return the corpus of a name; a name that is none gets the nearest as an answer."""
    if name in CORPORA:
        return CORPORA[name]
    nearest = difflib.get_close_matches(name, CORPORA, n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise ValueError(f"corpus: expected one of {', '.join(CORPORA)}, got {name!r}{hint}")


def _folder(path: Paths | None) -> Path | None:
    if not isinstance(path, str | PathLike):
        return None
    folder = Path(path).expanduser()
    return folder if folder.is_dir() else None


def _file_documents(corpus: Corpus, files: list[Path], column: str) -> Iterator[str]:
    if corpus.last is None:
        return read_documents(files, column=column, lines=corpus.lines)
    return last_documents(files, corpus.last, column=column, lines=corpus.lines)


def _repository_documents(
    name: str, corpus: Corpus, folder: Path | None, column: str
) -> Iterator[str]:
    """Yield the documents of a repository, which `datasets` maps into memory."""
    rows = _load(name, corpus, folder)
    if column not in rows.column_names:
        there = ", ".join(map(repr, rows.column_names))
        raise ValueError(f"{name}: expected a column {column!r}, found {there}")
    if corpus.last is not None:
        rows = rows.select(range(max(0, len(rows) - corpus.last), len(rows)))
    for batch in rows.select_columns([column]).iter(_ROWS_A_BATCH):
        for text in batch[column]:
            if not isinstance(text, str):
                kind = type(text).__name__
                raise ValueError(f"{name}: expected text in the column {column!r}, got {kind}")
            yield text


def _load(name: str, corpus: Corpus, folder: Path | None) -> Any:  # noqa: ANN401
    from datasets import load_dataset  # slow to import

    try:
        return load_dataset(
            corpus.hub if folder is None else str(folder),
            data_files={"evaluation": corpus.files},
            split="evaluation",
            revision=corpus.revision if folder is None else None,
            verification_mode="no_checks",  # other splits are left out on purpose
        )
    except Exception as error:  # the hub's client lets its network stack's errors through
        reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        place = f"the data hub ({corpus.hub})" if folder is None else f"the folder {folder}"
        raise FileNotFoundError(
            f"{name}: cannot load {corpus.files} from {place}; "
            f"give the text's files by data.path=FILES ({reason})"
        ) from error
