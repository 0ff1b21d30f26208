"""Conversations as text (chat_template.jinja) and as token ids with loss weights."""

import json

import jinja2
import numpy as np
from tokenizers import Tokenizer

# In sixteenths.
ASSISTANT_WEIGHT, PROSE_WEIGHT, GLOSS_WEIGHT, PROMPT_WEIGHT = 16, 8, 6, 1


def refuse(message):
    raise ValueError(message)


class Renderer:
    def __init__(self, assets):
        self.tokenizer = Tokenizer.from_file(f"{assets}/tokenizer.json")
        environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        environment.globals["raise_exception"] = refuse
        with open(f"{assets}/chat_template.jinja", encoding="utf-8") as file:
            self.template = environment.from_string(file.read())
        token = self.tokenizer.token_to_id
        self.turn_start, self.turn_end, self.end_of_text = map(token, ("<|im_start|>", "<|im_end|>", "<|endoftext|>"))
        self.think, self.end_think = token("<think>"), token("</think>")
        self.assistant = self.encode("assistant\n")
        (self.blank_line,) = self.encode("\n\n")

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def render(self, messages, tools, **options):
        return self.template.render(messages=messages, tools=tools, **options)

    def tokens(self, messages, tools):
        """-> token ids and loss weights: what the assistant must write counts fully, the rest a little."""
        ids = self.encode(self.render(messages, tools))
        weights = np.full(len(ids), PROMPT_WEIGHT, np.uint8)
        for start in self.answer_starts(ids):
            end = start
            while end < len(ids) and ids[end] != self.turn_end:
                end += 1
            weights[start : end + 1] = ASSISTANT_WEIGHT
        return ids, weights

    def answer_starts(self, ids):
        """Where the assistant's own text begins: after what the generation prompt already holds."""
        header = [self.turn_start, *self.assistant]
        for i in range(len(ids)):
            if ids[i : i + len(header)] != header:
                continue
            start = i + len(header)
            if ids[start : start + 1] == [self.think]:
                start += 2  # <think> and a line break
                if ids[start - 1 : start + 1] == [self.blank_line, self.end_think]:
                    start += 2  # empty thinking is given whole
            yield start
