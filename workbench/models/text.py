"""Between text and token ids for one tokenizer."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from workbench.models.loading import ModelError
from workbench.types import Prompt


class PromptEncoder:
    """Renders chat messages with the tokenizer's template and never writes two BOS tokens."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, name: str) -> None:
        self.tokenizer = tokenizer
        self.name = name

    def __call__(self, prompt: Prompt) -> tuple[str, tuple[int, ...]]:
        """The prompt as the model sees it, and its ids [P]."""
        text = prompt if isinstance(prompt, str) else self._render(prompt)
        ids = self.tokenizer(text, add_special_tokens=not self._has_specials(prompt, text)).input_ids
        if not ids:
            bos = self.tokenizer.bos_token_id
            if bos is None:
                raise ValueError(f"{self.name} got an empty prompt and its tokenizer has no BOS token to start from.")
            ids = [bos]
        return text, tuple(ids)

    def _render(self, messages: list[dict[str, str]]) -> str:
        if not self.tokenizer.chat_template:
            raise ModelError(
                f"{self.name}'s tokenizer has no chat template, but its formatter returned chat messages; "
                "return plain text or use a chat model."
            )
        return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    def _has_specials(self, prompt: Prompt, text: str) -> bool:
        """True when the text already carries what the tokenizer would add."""
        bos = self.tokenizer.bos_token
        return not isinstance(prompt, str) or bool(bos and text.startswith(bos))

    def decode(self, ids: Sequence[int]) -> str:
        """Text without special tokens, spaces untouched."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
