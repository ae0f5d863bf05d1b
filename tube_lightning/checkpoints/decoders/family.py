"""A family of decoders as data: what its ``config.json`` tells, and what it does not."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tube_lightning.checkpoints.checkpoint import WHOLE, Checkpoint, Sizes
from tube_lightning.checkpoints.decoders.networks import fill_network, make_network
from tube_lightning.checkpoints.decoders.parallel import cut_network
from tube_lightning.checkpoints.decoders.pieces import Translate, same_name
from tube_lightning.checkpoints.decoders.settings import plain_settings
from tube_lightning.checkpoints.family import Family
from tube_lightning.checkpoints.said import say
from tube_lightning.checkpoints.tensor_files import hash_files
from tube_lightning.networks import Context, DecoderBlockModel, DecoderFacts, First, check_decoder

_OPTIONS = ("dtype", "block_size", "mask_id", "model_length", "tensor_parallel")
_SIZE_IN_NAME = re.compile(r"-b(\d+)$")
Config = dict[str, Any]


@dataclass(frozen=True)
class DecoderFamily:
    """What all checkpoints of a family have in common.

    ``backbone`` is the model type of transformers whose class has the network, by the checkpoint's
    own ``model_type`` where that decides. ``block_size`` and ``mask_id`` are the defaults for what
    ``config.json`` does not tell under one of the ``block_keys`` or ``mask_keys``; a block size of
    None is the whole sequence, a mask id of None must be told. ``settings`` makes the arguments of
    transformers' configuration, ``translate`` the names of its tensors. ``look_alikes`` are model
    types of ARMs that ``config.json`` names: then only the user knows.
    """

    name: str
    backbone: str | Mapping[str, str]
    context: Context
    block_size: int | None
    mask_id: int | Mapping[str, int] | None
    shift: bool = False
    first: First = "own"
    first_goes_first: bool = False
    model_types: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    look_alikes: tuple[str, ...] = ()
    block_keys: tuple[str, ...] = ("block_size",)
    mask_keys: tuple[str, ...] = ("mask_token_id", "mask_id")
    length_key: str = "max_position_embeddings"
    settings: Callable[[Config], Config] = plain_settings
    translate: Callable[[Config], Translate] = field(default=lambda config: same_name)
    arms: tuple[str, ...] = ()
    """ARMs with the same tokenizer, to compare with: "self" for the network read causally."""

    def family(self) -> Family:
        """Return the family as the registry has it."""
        return Family(
            self.name,
            self.load,
            self.read_sizes,
            model_types=self.model_types,
            architectures=self.architectures,
            look_alikes=self.look_alikes,
            whole=self.block_size is None,
            arms=self.arms,
            fills_device=True,
        )

    def load(self, checkpoint: Checkpoint) -> DecoderBlockModel:
        """Load a checkpoint tensor by tensor, to torch's default device; check how it is read."""
        checkpoint.check_options(*_OPTIONS)
        facts = self.settle_facts(checkpoint)
        settings = self.settings(checkpoint.config)
        network = make_network(self._backbone(checkpoint), settings)
        if checkpoint.tensor_parallel > 1:
            cut_network(network, checkpoint.tensor_parallel)
        fill_network(network, checkpoint, self.translate(checkpoint.config))
        model = DecoderBlockModel(network, facts)
        if checkpoint.tensor_parallel > 1:
            model.fingerprint = hash_files(checkpoint)  # no process sees all weights
        if checkpoint.check:
            check_decoder(model, facts, str(checkpoint))
        return model

    def read_sizes(self, checkpoint: Checkpoint) -> Sizes:
        """Read the sizes without the weights."""
        return Sizes(self._vocab_size(checkpoint), self._max_length(checkpoint))

    def settle_facts(self, checkpoint: Checkpoint) -> DecoderFacts:
        """Settle what the user says, then what the files tell, then what is usual; say the last."""
        mask_id = self._settle_mask(checkpoint)
        block_size = self._settle_block(checkpoint)
        max_length = self._max_length(checkpoint)
        if self.block_size is None and checkpoint.block_size == max_length:
            say(f"{checkpoint}: {self.name} is one block: sequences of at most {max_length} tokens")
        whole = block_size is None
        return DecoderFacts(
            mask_id=mask_id,
            max_length=max_length,
            block_size=block_size,
            context="none" if whole else self.context,
            shift=self.shift,
            first="given" if whole and self.first == "previous" else self.first,
            first_goes_first=self.first_goes_first and not whole,
        )

    def _settle_mask(self, checkpoint: Checkpoint) -> int:
        told = _first_told(checkpoint.mask_id, checkpoint.config, self.mask_keys)
        mask_id = self._usual_mask(checkpoint) if told is None else told
        vocab_size = self._vocab_size(checkpoint)
        if not 0 <= mask_id < vocab_size:
            usual = f", which is usual for {self.name}" if told is None else ""
            raise ValueError(
                f"{checkpoint}: mask_id: expected one of the {vocab_size} tokens, got {mask_id}"
                f"{usual}: give mask_id=..."
            )
        if told is None:
            self._say_usual(checkpoint, "mask_id", mask_id)
        return mask_id

    def _settle_block(self, checkpoint: Checkpoint) -> int | None:
        if self.block_size is None or checkpoint.block_size == WHOLE:
            return None
        in_name = _SIZE_IN_NAME.search(str(checkpoint).rstrip("/"))
        given = checkpoint.block_size if isinstance(checkpoint.block_size, int) else None
        if given is None and in_name is not None:
            given = int(in_name[1])
        told = _first_told(given, checkpoint.config, self.block_keys)
        if told is None:
            self._say_usual(checkpoint, "block_size", self.block_size)
        return self.block_size if told is None else told

    def _say_usual(self, checkpoint: Checkpoint, option: str, value: int) -> None:
        say(f"{checkpoint}: {option}={value}, usual for {self.name}: its files do not tell")

    def _backbone(self, checkpoint: Checkpoint) -> str:
        if isinstance(self.backbone, str):
            return self.backbone
        kind = str(checkpoint.config.get("model_type"))
        if kind not in self.backbone:
            known = ", ".join(self.backbone)
            raise ValueError(f"{checkpoint}: model_type: expected one of {known}, got {kind!r}")
        return self.backbone[kind]

    def _usual_mask(self, checkpoint: Checkpoint) -> int:
        usual = self.mask_id
        if isinstance(usual, Mapping):
            usual = usual.get(checkpoint.config.get("model_type", ""))
        if usual is None:
            raise ValueError(
                f"{checkpoint}: neither its files nor {self.name} tell the mask token: give "
                "mask_id=..."
            )
        return usual

    def _vocab_size(self, checkpoint: Checkpoint) -> int:
        return int(self.settings(checkpoint.config)["vocab_size"])

    def _max_length(self, checkpoint: Checkpoint) -> int:
        """Return the longest sequence; that of a model which is one block is a block size, too."""
        own_block = checkpoint.block_size if self.block_size is None else None
        told = (checkpoint.config.get(self.length_key), checkpoint.model_length, own_block)
        known = [n for n in told if isinstance(n, int)]
        if not known:
            raise ValueError(f"{checkpoint}: it does not tell its length: give model_length=...")
        return min(known)


def _first_told(given: int | None, config: Config, keys: tuple[str, ...]) -> int | None:
    """Return what is given, or else the first of some keys that a configuration has."""
    if given is not None:
        return given
    return next((config[key] for key in keys if type(config.get(key)) is int), None)
