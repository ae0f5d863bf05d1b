"""Chats as text: what was said, by the template of a tokenizer."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from tube_lightning.data.tokenizers import TextTokenizer

Messages = list[dict[str, str]]
"""What was said, and by whom: each has a role and a content."""


def render_chat(tokenizer: "TextTokenizer", prompt: str | Messages) -> str:
    """Return a prompt as a chat that ends where the answer begins, by the tokenizer's template.

    A text is what the user said. Templates are rendered in the sandbox of jinja2.
    """
    chat = getattr(tokenizer, "chat", None)
    if chat is None:
        raise ValueError(f"chat_template: the tokenizer {tokenizer.name} has no template")
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    try:
        return str(chat(messages))
    except Exception as error:  # a template is a program of its author's
        raise ValueError(
            f"chat_template: that of {tokenizer.name} failed ({type(error).__name__}: {error})"
        ) from error


def apply_template(tokenizer: "PreTrainedTokenizerFast", messages: Messages) -> str:
    """Render messages by a tokenizer's template: transformers does so in jinja2's sandbox."""
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
