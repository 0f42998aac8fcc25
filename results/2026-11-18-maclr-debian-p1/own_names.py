"""What own names and the weight of guesses do beside cosines of MiniLM as it is.

usage: own_names.py FOLDER

FOLDER holds the task (`task`), 5,000 train documents (`held.jsonl`), vectors of labels and of documents as `frozen` models
(`m-labs`; `m-docs`, whose labels are the 5,000 and then the dev documents), and for SPLIT in held, dev (1000 labels) and
train (30) what `polytag predict` says with a `lexical` model: `lex.SPLIT.jsonl` for documents as they are, and
`lexA.SPLIT.jsonl` for documents with their label's alias at the end of the title, where they are labels.
"""
import json
import os
import sys

import numpy as np
from safetensors.numpy import load_file

os.chdir(sys.argv[1])


def read(path):
    with open(path) as file:
        for line in file:
            yield json.loads(line)


def vectors(model):
    rows = next(rows for rows in load_file(f"{model}/label_vectors.safetensors").values() if rows.ndim == 2)
    rows = rows.astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


place = {label["id"]: row for row, label in enumerate(read("task/labels.jsonl"))}
labels, every = vectors("m-labs"), vectors("m-docs")
documents = {"held": list(read("held.jsonl")), "dev": list(read("task/dev.jsonl"))}
vector = {"held": every[:5000], "dev": every[5000:]}


def prior(words, most=3):
    guessed = np.zeros(len(place))
    for document in read(f"{words}.train.jsonl"):
        others = [guess["id"] for guess in document["labels"] if guess["id"] != document["id"]]
        for label in others[:most]:
            guessed[place[label]] += 1
    return np.log1p(guessed / guessed.mean())


def shared(words, split):
    scores = np.zeros((len(documents[split]), len(place)), np.float32)
    for row, document in enumerate(read(f"{words}.{split}.jsonl")):
        for guess in document["labels"]:
            scores[row, place[guess["id"]]] = guess["score"]
    return scores


def measure(title, split, scores):
    first, found = [], []
    for document, row in zip(documents[split], scores):
        row = row.copy()
        if document["id"] in place:
            row[place[document["id"]]] = -9
        right = [place[label] for label in document["labels"]]
        first.append(row.argmax() in right)
        found.append(np.isin(right, np.argpartition(-row, 100)[:100]).mean())
    print(f"{split:5} {title:40} P@1 {100 * np.mean(first):.2f}  R@100 {100 * np.mean(found):.2f}", flush=True)


for split in documents:
    cosines = vector[split] @ labels.T
    for words, name in (("lex", "texts"), ("lexA", "texts and own names")):
        mine, gains = shared(words, split), prior(words)
        measure(name, split, mine)
        for weight in (0.05, 0.08, 0.12, 0.16):
            measure(f"{name}, label_prior {weight}", split, cosines + mine + weight * gains)
