"""Detokenizers on excerpts written in each set's format."""

import pytest

from tube_lightning.data import ByteTokenizer, text_sequences
from tube_lightning.data.detokenizers import detokenize_lm1b


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("The shop 's owner did n't answer .", "The shop's owner did n't answer."),
        ('He asked , " why now ? "', 'He asked, "why now?"'),
        (
            "See http : / / example.org / a for more ; thanks !",
            "See http://example.org/a for more; thanks!",
        ),
        ("It cost $ 5 ( or £ 4 ) : cheap .", "It cost $5 (or £4): cheap."),
        ("no change", "no change"),
    ],
)
def test_lm1b(raw, text):
    assert detokenize_lm1b(raw) == text


def test_text_blocks_put_each_document_through(tmp_path):
    path = tmp_path / "sentences.txt"
    path.write_text("Yes , sir .\nNo .\n")
    blocks = text_sequences(path, ByteTokenizer(), 4, lines=True, detokenize=detokenize_lm1b)
    text = ByteTokenizer().decode(blocks.tokens.flatten())
    assert text == "Yes, sir.\0No.\0"[: len(text)]
