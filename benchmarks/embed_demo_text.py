"""Make the embedded demo text anew: the held-out documents, and the tokenizer of the demo models.

    python -m benchmarks.embed_demo_text

Run it with Python 3.11: the documents are those of the Python that runs it. The tokenizer is a
byte-level BPE of the training split, so it has seen neither held-out nor validation documents.
"""

import json
import sys

from rich.console import Console
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tube_lightning.data.demo import HELDOUT_FILE, demo_documents, select_heldout
from tube_lightning.data.python_text import python_documents
from tube_lightning.data.tokenizers import DEMO_END, DEMO_TOKENIZER_FILE

VOCAB_SIZE = 1024
PYTHON = (3, 11)


def train_tokenizer(vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    """Learn merges of bytes from the training split; id 0 ends a document."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[DEMO_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = (document.text for document in demo_documents("train"))
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def main() -> None:
    """Write both files."""
    if sys.version_info[:2] != PYTHON:
        raise SystemExit(f"expected Python {'.'.join(map(str, PYTHON))}, got {sys.version}")
    heldout = select_heldout(python_documents())
    lines = [json.dumps(document._asdict(), ensure_ascii=False) for document in heldout]
    HELDOUT_FILE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    train_tokenizer().save(str(DEMO_TOKENIZER_FILE), pretty=False)
    Console().print(
        f"{len(heldout)} documents of {sum(d.num_bytes for d in heldout):,} bytes in "
        f"{HELDOUT_FILE.name}; {DEMO_TOKENIZER_FILE.name} learned from "
        f"{sum(d.num_bytes for d in demo_documents('train')):,} bytes"
    )


if __name__ == "__main__":
    main()
