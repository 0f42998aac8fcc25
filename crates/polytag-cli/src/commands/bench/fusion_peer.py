"""Algorithm 1 of paper 000 as it is written, over the 32-bit floats on standard input: the vectors of predicted labels,
their probabilities, the vectors of unseen labels, end to end."""
import itertools
import json
import os
import sys
import time

predicted, unseen, dim, rounds, threads = map(int, sys.argv[1:6])
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(threads)

import numpy as np


def read(*shape):
    data = sys.stdin.buffer.read(int(np.prod(shape)) * 4)
    return np.frombuffer(data, dtype="<f4").reshape(shape)


vectors, probabilities, others = read(predicted, dim), read(predicted), read(unseen, dim)


def fuse():
    weighted = vectors * probabilities[:, None]
    sums = []
    for size in range(1, predicted + 1):
        for labels in itertools.combinations(range(predicted), size):
            sums.append(weighted[list(labels)].sum(axis=0))
    sums = np.stack(sums)
    sums /= np.linalg.norm(sums, axis=1, keepdims=True)
    units = others / np.linalg.norm(others, axis=1, keepdims=True)
    return (sums @ units.T).max(axis=0)


best, cosines = float("inf"), None
for _ in range(rounds):
    start = time.perf_counter()
    cosines = fuse()
    best = min(best, time.perf_counter() - start)
print(json.dumps({"name": f"NumPy {np.__version__}", "seconds": best, "cosines": cosines.tolist()}))
