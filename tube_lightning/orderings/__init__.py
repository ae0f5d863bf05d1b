"""Reveal times -> orderings, steps and revealed sets. No global randomness anywhere."""

from tube_lightning.orderings.roles import Role, block_roles
from tube_lightning.orderings.sets import (
    RevealedSets,
    all_sets,
    decode_sets,
    distinct_sets,
    encode_sets,
    set_codes,
    unique_sets,
)
from tube_lightning.orderings.steps import ALREADY, NEVER, partition_steps, reveal_steps
from tube_lightning.orderings.times import all_orderings, left_to_right_times, reveal_times
from tube_lightning.regimes import EqualChunks, FirstFirst, Steps

__all__ = [
    "ALREADY",
    "NEVER",
    "EqualChunks",
    "FirstFirst",
    "RevealedSets",
    "Role",
    "Steps",
    "all_orderings",
    "all_sets",
    "block_roles",
    "decode_sets",
    "distinct_sets",
    "encode_sets",
    "left_to_right_times",
    "partition_steps",
    "reveal_steps",
    "reveal_times",
    "set_codes",
    "unique_sets",
]
