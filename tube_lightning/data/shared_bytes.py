"""Two ways to cut one text into tokens: the pieces of it that both score, byte by byte.

A place in a text is a number: the bytes before it, with one more for the end of each document,
which is scored as bytes are. An *atom* is what a model gives one number for: a token of an ARM, the
scored tokens of a block of a block model. Where atoms of both begin or end, the text can be cut.
A piece between two such places is shared if atoms of both cover all of it: bytes that either model
is given, or never read, take their whole piece away from both.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int64

from tube_lightning.data.sequences import TokenSequences

NOT_SHARED = -1


@dataclass(frozen=True, eq=False)
class Atoms:
    """What a model gives one number for, in the order of the text.

    ``first`` and ``end`` are places. ``is_whole`` says that the last token of an atom has bytes of
    its own: else it is the beginning of a character, whose bytes are with the token that ends it.
    """

    first: Int64[np.ndarray, " atoms"]
    end: Int64[np.ndarray, " atoms"]
    is_whole: Bool[np.ndarray, " atoms"]

    @cached_property
    def cuts(self) -> Int64[np.ndarray, " cuts"]:
        """List the places where an atom begins or ends, none of them inside another one.

        An atom that has bytes, and then the beginning of a character, goes on behind its end. One
        of such beginnings alone is all behind its place: there the text can be cut.
        """
        ends = self.end[self.is_whole]
        torn = self.end[~self.is_whole & (self.end > self.first)]
        return np.setdiff1d(np.concatenate([self.first, ends]), torn)


def place_tokens(
    texts: tuple[TokenSequences, TokenSequences],
) -> tuple[Int64[np.ndarray, "_ _"], Int64[np.ndarray, "_ _"]]:
    """Return where each token of both begins, and behind the last of a sequence, where that ends.

    Padding has no width.
    """
    widths = [_widths(text) for text in texts]
    documents = [_documents(text) for text in texts]
    count = 1 + max(int(numbers.max()) for numbers in documents)
    sizes = [
        np.bincount(n.ravel(), w.ravel(), count).astype(np.int64)
        for n, w in zip(documents, widths, strict=True)
    ]
    starts = np.maximum(*sizes).cumsum() - np.maximum(*sizes)  # an end that one dropped has a place
    one, other = (
        _place(w, n, starts, size) for w, n, size in zip(widths, documents, sizes, strict=True)
    )
    return one, other


def _widths(text: TokenSequences) -> Int64[np.ndarray, "sequences length"]:
    """Count the bytes of each token; the end of a document is as wide as a byte."""
    if text.token_bytes is None:
        raise ValueError(f"{text.source}: expected the bytes of every token, got token ids alone")
    widths = text.token_bytes.numpy().astype(np.int64)
    if text.eos_id is not None:
        is_end = (text.tokens.numpy() == text.eos_id) & (widths == 0)
        if text.lengths is not None:
            is_end &= np.arange(text.length) < text.lengths.numpy()[:, None]
        widths = widths + is_end
    return widths


def _documents(text: TokenSequences) -> Int64[np.ndarray, "sequences length"]:
    if text.documents is None:
        raise ValueError(f"{text.source}: expected the document of every token, got none")
    return text.documents.numpy().astype(np.int64)


def _place(
    widths: Int64[np.ndarray, "sequences length"],
    documents: Int64[np.ndarray, "sequences length"],
    starts: Int64[np.ndarray, " documents"],
    sizes: Int64[np.ndarray, " documents"],
) -> Int64[np.ndarray, "sequences places"]:
    """Add up the widths inside of each document, which is read from its beginning."""
    read = (widths.ravel().cumsum() - widths.ravel()).reshape(widths.shape)
    places = starts[documents] + read - (sizes.cumsum() - sizes)[documents]
    return np.concatenate([places, places[:, -1:] + widths[:, -1:]], axis=1)


def share_pieces(
    one: Atoms, other: Atoms
) -> tuple[Int64[np.ndarray, " one"], Int64[np.ndarray, " other"]]:
    """Number the shared pieces; return the piece of each atom of both, ``NOT_SHARED`` for others.

    >>> whole = np.ones(3, dtype=bool)
    >>> blocks = Atoms(np.array([1, 4, 8]), np.array([4, 8, 12]), whole)  # byte 0 is given
    >>> tokens = Atoms(np.array([0, 2, 8]), np.array([2, 8, 12]), whole)
    >>> [pieces.tolist() for pieces in share_pieces(blocks, tokens)]
    [[-1, -1, 0], [-1, -1, 0]]
    """
    cuts = np.intersect1d(one.cuts, other.cuts)
    shared = np.ones(max(len(cuts) - 1, 0), dtype=bool)
    places = []
    for atoms in (one, other):
        place = np.searchsorted(cuts, atoms.first, side="right") - 1
        inside = (place >= 0) & (place < len(shared))
        covered = np.bincount(place[inside], (atoms.end - atoms.first)[inside], len(shared))
        shared &= covered == np.diff(cuts)
        places.append(np.where(inside, place, NOT_SHARED))
    numbers = np.append(np.where(shared, shared.cumsum() - 1, NOT_SHARED), NOT_SHARED)
    one_piece, other_piece = (numbers[place] for place in places)
    return one_piece, other_piece
