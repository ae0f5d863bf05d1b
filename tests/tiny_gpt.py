"""A causal model of transformers with a byte-level tokenizer of its own, as users have them."""

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers


def save_tiny_gpt(folder, texts, *, length, num_tokens=290, unused=6):
    """Save it with random weights; it has a few more ids than its tokenizer, as many models do."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=num_tokens,
        special_tokens=["<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=backend.get_vocab_size() + unused,
        n_positions=length,
        n_embd=16,
        n_layer=1,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    return folder
