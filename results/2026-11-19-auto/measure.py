"""What `auto` takes on a CPU without an encoder, and how good that is, beside methods by name.

usage: measure.py POLYTAG DEBTAGS EURLEX57K > rows.jsonl

Documents are drawn from the train splits of two task folders; labels are all of the task ("all"), or those that the drawn documents carry
("covered"). Measured on the sample's dev split, and on 1,500 documents of EURLEX57K's.
"""

import json
import os
import random
import subprocess
import sys
import tempfile

METHODS = ["lexical", "auto", "label-tree", "zest"]
SIZES = {"debtags": [20, 60, 150, 300, 700, 1400], "eurlex": [20, 60, 150, 300, 1000, 3000]}
MEASURES = ["P@1", "nDCG@5", "R@10", "R@100", "ZSR@10"]


def read(folder, name):
    plain, packed = (os.path.join(folder, name + end) for end in (".jsonl", ".jsonl.zst"))
    command = ["cat", plain] if os.path.exists(plain) else ["zstd", "-dcq", packed]
    text = subprocess.run(command, check=True, capture_output=True).stdout.decode()
    return [json.loads(line) for line in text.split("\n") if line]


def write(folder, name, records):
    with open(os.path.join(folder, name + ".jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def measured(polytag, folder, method):
    task, model, none = (os.path.join(folder, name) for name in ("task", "model", "no-encoders"))
    command = [polytag, "fit", task, "--method", method, "--out", model, "--device", "cpu", "--cache", none]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stderr.split("\n")
    row = {"method": method}
    if method == "auto":
        row["is"] = [line for line in told if line.startswith("method:")]
    command = [polytag, "evaluate", model, task, "--split", "dev", "--json", "-", "-q", "--device", "cpu"]
    metrics = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["metrics"]
    return row | {name: metrics.get(name) for name in MEASURES}


def main():
    polytag, *tasks = sys.argv[1:]
    for seed in (1, 2):
        for (name, sizes), source in zip(SIZES.items(), tasks, strict=True):
            labels, train, dev = (read(source, part) for part in ("labels", "train", "dev"))
            if name == "eurlex":
                dev = random.Random(1).sample(dev, 1500)
            for size in sizes:
                drawn = random.Random(size + 7000 * seed).sample(train, size)
                carried = {label for document in drawn for label in document.get("labels", [])}
                for kind in ("all", "covered"):
                    kept = [label for label in labels if kind == "all" or label["id"] in carried]
                    # Parents may be among those that are left out.
                    kept = [{key: value for key, value in label.items() if key != "parents"} for label in kept]
                    ids = {label["id"] for label in kept}
                    less = lambda document: document | {"labels": [id for id in document.get("labels", []) if id in ids]}
                    with tempfile.TemporaryDirectory() as folder:
                        os.mkdir(os.path.join(folder, "task"))
                        for part, records in (("labels", kept), ("train", map(less, drawn)), ("dev", map(less, dev))):
                            write(os.path.join(folder, "task"), part, records)
                        for method in METHODS:
                            row = {"task": name, "seed": seed, "n": size, "labels": kind, "share": round(len(carried) / len(labels), 3)}
                            print(json.dumps(row | measured(polytag, folder, method)), flush=True)


if __name__ == "__main__":
    main()
