"""Text -> token blocks -> batches."""

from tube_lightning.data.batches import TrainingBatches, ValidationBatches
from tube_lightning.data.blocks import TokenBlocks
from tube_lightning.data.datamodule import TokenDataModule
from tube_lightning.data.demo import demo_blocks, demo_documents, stdlib_docstrings
from tube_lightning.data.files import read_documents, text_blocks
from tube_lightning.data.packing import pack
from tube_lightning.data.token_files import token_blocks
from tube_lightning.data.tokenizers import (
    ByteTokenizer,
    PretrainedTokenizer,
    TextTokenizer,
    load_tokenizer,
)

__all__ = [
    "ByteTokenizer",
    "PretrainedTokenizer",
    "TextTokenizer",
    "TokenBlocks",
    "TokenDataModule",
    "TrainingBatches",
    "ValidationBatches",
    "demo_blocks",
    "demo_documents",
    "load_tokenizer",
    "pack",
    "read_documents",
    "stdlib_docstrings",
    "text_blocks",
    "token_blocks",
]
