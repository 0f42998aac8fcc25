"""Gains of labels by how often another ranking guesses them, on top of rankings without gains; and where two rankings differ.

usage: guesses.py TASK TAGS GUESSES [WEIGHT ...]
       guesses.py TASK TAGS OTHER-TAGS --differ

TAGS are what `predict --k 300` says of TASK's dev documents, GUESSES what `predict --k 3` says of its train documents.
"""

import collections
import json
import math
import os
import sys


def lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def main():
    task, tags, other, *rest = sys.argv[1:]
    gold = {document["id"]: set(document["labels"]) for document in lines(os.path.join(task, "dev.jsonl"))}
    rows = lines(tags)
    if rest == ["--differ"]:
        right, wrong = collections.Counter(), collections.Counter()
        for sign, ranking in ((1, rows), (-1, lines(other))):
            for row in ranking:
                best = row["labels"][0]
                (right if best["id"] in gold[row["id"]] else wrong)[best["name"]] += sign
        for name in sorted(right.keys() | wrong.keys(), key=lambda name: right[name] - wrong[name]):
            print(f"{name}: right {right[name]:+d}, wrong {wrong[name]:+d}")
        return
    labels = len(lines(os.path.join(task, "labels.jsonl")))
    counts = collections.Counter(label["id"] for row in lines(other) for label in row["labels"][:3])
    mean = sum(counts.values()) / labels
    for weight in map(float, rest):
        sums = collections.Counter()
        for row in rows:
            right = gold[row["id"]]
            gain = lambda label: weight * math.log1p(counts[label["id"]] / mean)
            ranked = sorted(((label["score"] + gain(label), label["id"]) for label in row["labels"]), reverse=True)
            ids = [id for _, id in ranked]
            sums["P@1"] += ids[0] in right
            sums["P@5"] += len(right.intersection(ids[:5])) / 5
            sums["R@10"] += len(right.intersection(ids[:10])) / len(right)
            sums["R@100"] += len(right.intersection(ids[:100])) / len(right)
        print(weight, {name: round(100 * sum / len(rows), 2) for name, sum in sums.items()})


if __name__ == "__main__":
    main()
