"""FAISS over the vectors on standard input: labels first, then queries, 32-bit floats end to end."""
import json
import os
import sys
import time

labels, queries, dim, k, rounds, threads = map(int, sys.argv[1:7])
precision = sys.argv[7]
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(threads)

import faiss
import numpy as np

faiss.omp_set_num_threads(threads)
if precision == "f16":
    kind = "IndexScalarQuantizer, QT_fp16"
    index = faiss.IndexScalarQuantizer(dim, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
    index.is_trained = True
elif precision == "i8":
    index = faiss.IndexScalarQuantizer(dim, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)
    kind = "IndexScalarQuantizer, QT_8bit"
else:
    kind = "IndexFlatIP"
    index = faiss.IndexFlatIP(dim)


def read(count):
    data = sys.stdin.buffer.read(count * dim * 4)
    return np.frombuffer(data, dtype="<f4").reshape(count, dim)


done = 0
while done < labels:
    part = read(min(65536, labels - done))
    if not index.is_trained:
        index.train(part)
    index.add(part)
    done += len(part)
asked = read(queries)
best, found = float("inf"), None
for _ in range(rounds):
    start = time.perf_counter()
    _, found = index.search(asked, k)
    best = min(best, time.perf_counter() - start)
print(json.dumps({"name": f"faiss {faiss.__version__} {kind}", "seconds": best, "found": found.tolist()}))
