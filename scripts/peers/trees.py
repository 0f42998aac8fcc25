"""The tree side of `scripts/bench-peers`: libpecos or omikuji on the rows that the example `label_tree` wrote.

usage: trees.py pecos|omikuji FOLDER

Prints processor time of training, of ranking a thousand dev rows, and of one row at a time, the size of the model, and
precision and nDCG on dev.
"""
import os
import pathlib
import sys
import time

import numpy as np
import scipy.sparse as sp

peer, folder = sys.argv[1], pathlib.Path(sys.argv[2])


def matrix(split, name, columns, values=True):
    starts = np.fromfile(folder / f"{split}.{name}_starts.u64", "<u8").astype("i8")
    at = np.fromfile(folder / f"{split}.{name}_columns.u32", "<u4").astype("i8")
    data = np.fromfile(folder / f"{split}.{name}_values.f32", "<f4") if values else np.ones(len(at), "f4")
    columns = columns or int(at.max()) + 1
    return sp.csr_matrix((data, at, starts), shape=(len(starts) - 1, columns), dtype="f4")


train = matrix("train", "x", None)
width = train.shape[1]
dev = matrix("dev", "x", width)
labels = max(int(np.fromfile(folder / f"{split}.y_columns.u32", "<u4").max()) + 1 for split in ("train", "dev"))
train_labels, gold = matrix("train", "y", labels, False), matrix("dev", "y", labels, False)
print(f"{peer}: {train.shape[0]} rows of {width} columns, {train.nnz / train.shape[0]:.0f} entries each, {labels} labels", flush=True)


def quality(ranked):
    """P@1/3/5 and nDCG@5 of rankings, a list of labels a document."""
    hits = np.zeros((len(ranked), 5))
    discounts = 1 / np.log2(np.arange(2, 7))
    gains, ideals = 0.0, 0
    for row, found in enumerate(ranked):
        true = set(gold.indices[gold.indptr[row]:gold.indptr[row + 1]])
        if not true:
            continue
        for place, label in enumerate(found[:5]):
            hits[row, place] = label in true
        gains += (hits[row] * discounts).sum() / discounts[:min(5, len(true))].sum()
        ideals += 1
    precision = [100 * hits[:, :k].sum() / k / ideals for k in (1, 3, 5)]
    return "P@1={:.2f} P@3={:.2f} P@5={:.2f} nDCG@5={:.2f}".format(*precision, 100 * gains / ideals)


def size(path):
    return sum(file.stat().st_size for file in pathlib.Path(path).rglob("*") if file.is_file()) / 1e6


def timed(work, passes=1):
    best, result = None, None
    for _ in range(passes):
        start = time.process_time()
        result = work()
        spent = time.process_time() - start
        best = spent if best is None else min(best, spent)
    return best, result


if peer == "pecos":
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    def fit():
        tree = Indexer.gen(LabelEmbeddingFactory.create(train_labels, train, method="pifa"), indexer_type="hierarchicalkmeans")
        return XLinearModel.train(train, train_labels, C=tree, threshold=0.1)

    seconds, model = timed(fit)
    print(f"RESULT pecos train_cpu_s={seconds:.2f}", flush=True)
    model.save(str(folder / "pecos"))
    model = XLinearModel.load(str(folder / "pecos"), is_predict_only=True)
    rank = lambda rows: model.predict(rows, only_topk=5, beam_size=10)
    seconds, _ = timed(lambda: rank(dev[:1000]), 5)
    print(f"RESULT pecos rank_1000_rows_cpu_s={seconds:.4f} model_mb={size(folder / 'pecos'):.1f}", flush=True)
    times = []
    for row in range(1000):
        one = dev[row]
        start = time.perf_counter()
        rank(one)
        times.append(time.perf_counter() - start)
    print(f"RESULT pecos one_row_ms_median={1e3 * np.median(times):.3f} p95={1e3 * np.quantile(times, 0.95):.3f}", flush=True)
    found = rank(dev)
    ranked = []
    for row in range(found.shape[0]):
        part = slice(found.indptr[row], found.indptr[row + 1])
        ranked.append(found.indices[part][np.argsort(-found.data[part], kind="stable")])
    print("RESULT pecos", quality(ranked), flush=True)
else:
    import omikuji

    path = folder / "omikuji.txt"
    with open(path, "w") as file:
        file.write(f"{train.shape[0]} {width} {labels}\n")
        for row in range(train.shape[0]):
            true = train_labels.indices[train_labels.indptr[row]:train_labels.indptr[row + 1]]
            part = slice(train.indptr[row], train.indptr[row + 1])
            entries = (f"{column}:{value:.7g}" for column, value in zip(train.indices[part], train.data[part]))
            file.write(",".join(map(str, true)) + " " + " ".join(entries) + "\n")
    settings = omikuji.Model.default_hyper_param()
    seconds, model = timed(lambda: omikuji.Model.train_on_data(str(path), settings))
    print(f"RESULT omikuji train_cpu_s={seconds:.2f} trees={settings.n_trees}", flush=True)
    os.makedirs(folder / "omikuji", exist_ok=True)
    model.save(str(folder / "omikuji"))
    pairs = [list(zip(dev.indices[dev.indptr[row]:dev.indptr[row + 1]].tolist(),
                      dev.data[dev.indptr[row]:dev.indptr[row + 1]].tolist())) for row in range(dev.shape[0])]
    rank = lambda rows: [[label for label, _ in model.predict(row, top_k=5)] for row in rows]
    seconds, _ = timed(lambda: rank(pairs[:1000]), 2)
    print(f"RESULT omikuji rank_1000_rows_cpu_s={seconds:.4f} model_mb={size(folder / 'omikuji'):.1f}", flush=True)
    print("RESULT omikuji", quality(rank(pairs)), flush=True)
