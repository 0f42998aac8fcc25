"""scikit-learn's side of `scripts/bench-peers`: time TfidfVectorizer and compare its matrix with ours.

usage: tfidf.py TASK OURS NGRAMS MIN_DF PASSES

OURS is the folder that the example `tfidf` wrote with the same settings.
"""
import gzip
import io
import json
import pathlib
import sys
import time

import numpy as np
import scipy.sparse
import sklearn
import zstandard
from sklearn.feature_extraction.text import TfidfVectorizer

task, ours, ngrams, min_df, passes = sys.argv[1], pathlib.Path(sys.argv[2]), *map(int, sys.argv[3:6])


def lines(path):
    if path.with_name(path.name + ".zst").exists():
        raw = open(path.with_name(path.name + ".zst"), "rb")
        return io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(raw), encoding="utf-8")
    if path.with_name(path.name + ".gz").exists():
        return gzip.open(path.with_name(path.name + ".gz"), "rt", encoding="utf-8")
    return open(path, encoding="utf-8")


texts = [json.loads(line)["text"] for line in lines(pathlib.Path(task) / "train.jsonl")]
print(f"scikit-learn {sklearn.__version__}, numpy {np.__version__}, {len(texts)} texts", flush=True)
for number in range(passes):
    start = time.perf_counter()
    vectorizer = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, ngrams), min_df=min_df)
    theirs = vectorizer.fit_transform(texts)
    seconds = time.perf_counter() - start
    print(f"RESULT sklearn tfidf pass={number} fit_transform_s={seconds:.3f}", flush=True)

terms = (ours / "terms.txt").read_text(encoding="utf-8").split("\n")[:-1]
assert terms == vectorizer.get_feature_names_out().tolist(), "the vocabularies differ"
mine = scipy.sparse.csr_matrix(
    (np.fromfile(ours / "values.f32", "<f4").astype("f8"),
     np.fromfile(ours / "indices.u32", "<u4").astype("i8"),
     np.fromfile(ours / "starts.u64", "<u8").astype("i8")),
    shape=theirs.shape)
theirs.sort_indices()
assert (mine.indptr == theirs.indptr).all() and (mine.indices == theirs.indices).all(), "other entries"
difference = np.abs(mine.data - theirs.data).max()
print(f"RESULT compare terms={len(terms)} entries={theirs.nnz} greatest_difference={difference:.2e}", flush=True)
assert difference < 1e-6, "values differ by more than 1e-6"
