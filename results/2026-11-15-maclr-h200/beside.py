"""What words and guesses beside cosines would do, on vectors of models as they were trained.

usage: beside.py NAME TASK LEXICAL.train.jsonl LEXICAL.dev.jsonl [--item-to-item]

NAME.a.npz, NAME.b.npz and NAME.d.npz hold vectors of labels (two halves) and dev documents in bytes (`q`) and a scale a
row (`s`). The two files are what `polytag predict` says with a `lexical` model of the task: the best 4 labels of train
documents, and the best 1000 of dev.
"""
import json
import sys

import numpy as np

name, task, train_guesses, dev_guesses = sys.argv[1:5]
item_to_item = "--item-to-item" in sys.argv


def read(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def vectors(part):
    kept = np.load(f"{name}.{part}.npz")
    rows = kept["q"].astype(np.float32) * kept["s"]
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


labels = {label["id"]: row for row, label in enumerate(read(f"{task}/labels.jsonl"))}
documents = read(f"{task}/dev.jsonl")
seen = {label for document in read(f"{task}/train.jsonl") for label in document["labels"]}
unseen = np.array([label not in seen for label in labels])
gold = [np.array([labels[label] for label in document["labels"]], int) for document in documents]
own = [labels.get(document["id"]) if item_to_item else None for document in documents]

guessed = np.zeros(len(labels))
for document in read(train_guesses):
    others = [guess["id"] for guess in document["labels"] if not item_to_item or guess["id"] != document["id"]]
    for label in others[:3]:
        guessed[labels[label]] += 1
prior = np.log1p(guessed / guessed.mean())

cosines = vectors("d") @ np.concatenate([vectors("a"), vectors("b")]).T
words = np.zeros_like(cosines)
places = {document["id"]: place for place, document in enumerate(documents)}
for document in read(dev_guesses):
    for guess in document["labels"]:
        words[places[document["id"]], labels[guess["id"]]] = guess["score"]


def measure(title, scores):
    found = first = zero = zeros = count = 0
    for row, right in enumerate(gold):
        if len(right) == 0:
            continue
        ranked = scores[row].copy()
        if own[row] is not None:
            ranked[own[row]] = -np.inf
        best = np.argpartition(-ranked, 100)[:100]
        hit = np.isin(right, best)
        count += 1
        first += ranked.argmax() in right
        found += hit.mean()
        if unseen[right].any():
            zeros += 1
            zero += hit[unseen[right]].mean()
    figures = 100 * first / count, 100 * found / count, 100 * zero / max(zeros, 1)
    print(f"{title:28} P@1 {figures[0]:5.2f}  R@100 {figures[1]:5.2f}  ZSR@100 {figures[2]:5.2f}", flush=True)


measure("lexical", words)
for weight in (0, 0.5, 1.0, 1.5):
    for share in (0, 0.03, 0.05):
        measure(f"words {weight}, prior {share}", cosines + weight * words + share * prior)
