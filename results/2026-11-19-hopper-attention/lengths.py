"""Lengths of EURLEX57K's texts in tokens, for `polytag bench train-step --lengths`: 512 of train drawn at random, in batches of 64.

usage: lengths.py TASK TOKENIZER.json > lengths.json        (pip install tokenizers zstandard)
"""
import io
import json
import random
import sys

import tokenizers
import zstandard

task, tokenizer = sys.argv[1:]
tokenizer = tokenizers.Tokenizer.from_file(tokenizer)
tokenizer.no_padding()
tokenizer.enable_truncation(512)
with open(f"{task}/train.jsonl.zst", "rb") as file:
    lines = list(io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8"))
lengths = []
for line in random.Random(1).sample(lines, 512):
    document = json.loads(line)
    text = "\n".join(part for part in (document.get("title"), document["text"]) if part)
    lengths.append(len(tokenizer.encode(text).ids))
print(json.dumps([lengths[start : start + 64] for start in range(0, len(lengths), 64)]))
