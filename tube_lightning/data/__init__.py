"""Text -> token sequences -> batches."""

from typing import TYPE_CHECKING, Any

from tube_lightning.data.batches import TrainingBatches, ValidationBatches
from tube_lightning.data.corpora import CORPORA, Corpus, corpus_sequences
from tube_lightning.data.demo import demo_documents, demo_sequences
from tube_lightning.data.evaluation import document_sequences, evaluation_sequences
from tube_lightning.data.files import read_documents, text_sequences
from tube_lightning.data.order import Order, check_order, sequence_order
from tube_lightning.data.packing import cut_documents, pack
from tube_lightning.data.sequences import AtMost, TokenSequences
from tube_lightning.data.shared_bytes import NOT_SHARED, Atoms, place_tokens, share_pieces
from tube_lightning.data.token_files import token_sequences
from tube_lightning.data.tokenizers import (
    AUTO,
    DEMO,
    ByteTokenizer,
    Encoded,
    PretrainedTokenizer,
    TextTokenizer,
    check_fits,
    fitting_tokenizer,
    load_tokenizer,
)

if TYPE_CHECKING:
    from tube_lightning.data.datamodule import TokenDataModule

__all__ = [
    "AUTO",
    "CORPORA",
    "DEMO",
    "NOT_SHARED",
    "AtMost",
    "Atoms",
    "ByteTokenizer",
    "Corpus",
    "Encoded",
    "Order",
    "PretrainedTokenizer",
    "TextTokenizer",
    "TokenDataModule",
    "TokenSequences",
    "TrainingBatches",
    "ValidationBatches",
    "check_fits",
    "check_order",
    "corpus_sequences",
    "cut_documents",
    "demo_documents",
    "demo_sequences",
    "document_sequences",
    "evaluation_sequences",
    "fitting_tokenizer",
    "load_tokenizer",
    "pack",
    "place_tokens",
    "read_documents",
    "sequence_order",
    "share_pieces",
    "text_sequences",
    "token_sequences",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import Lightning, which takes seconds, for its one user only."""
    if name == "TokenDataModule":
        from tube_lightning.data.datamodule import TokenDataModule

        return TokenDataModule
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
