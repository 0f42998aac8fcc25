"""A blend of trees and words on few documents of a large label set, by two programs.

usage: measure.py SEEDS NAME=POLYTAG[,NAME=POLYTAG] DEBTAGS EURLEX57K > rows.jsonl

Documents are drawn from the train splits of two task folders; labels are all of the task ("all"), or those that the drawn documents carry
("covered"). Measured on the sample's dev split, and on 1,500 documents of EURLEX57K's.
"""

import json
import os
import random
import subprocess
import sys
import tempfile

SIZES = {"eurlex": [60, 150, 300, 1000, 3000], "debtags": [150, 300, 700, 1400]}
MEASURES = ["P@1", "P@5", "nDCG@5", "R@10", "R@100", "ZSR@10", "calibration error@5", "unseen share@5"]


def read(folder, name):
    plain = os.path.join(folder, name + ".jsonl")
    command = ["cat", plain] if os.path.exists(plain) else ["zstd", "-dcq", plain + ".zst"]
    text = subprocess.run(command, check=True, capture_output=True).stdout.decode()
    return [json.loads(line) for line in text.split("\n") if line]


def write(folder, name, records):
    with open(os.path.join(folder, name + ".jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def measured(polytag, folder):
    task, model, none = (os.path.join(folder, name) for name in ("task", "model", "no-encoders"))
    command = [polytag, "fit", task, "--method", "blend", "--out", model, "--device", "cpu", "--cache", none]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stderr.split("\n")
    told = [line.split("rehearsal: ")[-1].strip() for line in told if "rehearsal: " in line or "log-odds" in line]
    command = [polytag, "evaluate", model, task, "--split", "dev", "--json", "-", "-q", "--device", "cpu"]
    metrics = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["metrics"]
    return {name: round(metrics[name], 2) for name in MEASURES if name in metrics} | {"told": told}


def main():
    seeds, programs, debtags, eurlex = sys.argv[1:]
    programs = [program.split("=", 1) for program in programs.split(",")]
    for seed in map(int, seeds.split(",")):
        for name, source in (("eurlex", eurlex), ("debtags", debtags)):
            labels, train, dev = (read(source, part) for part in ("labels", "train", "dev"))
            if name == "eurlex":
                dev = random.Random(1).sample(dev, 1500)
            for size in SIZES[name]:
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
                        for program, polytag in programs:
                            row = {"program": program, "task": name, "seed": seed, "n": size, "labels": kind}
                            row["share"] = round(len(carried) / len(labels), 3)
                            print(json.dumps(row | measured(polytag, folder)), flush=True)


if __name__ == "__main__":
    main()
