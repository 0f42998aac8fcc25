"""One peer of scripts/bench-index in a process of its own: builds or reads its index, searches, prints lines of JSON.

usage: index.py SIDE LABELS.npy QUERIES.npy KEPT FOUND THREADS K ROUNDS SETTINGS
SETTINGS is JSON: {"build": {...}, "search": [..]}; FOUND gets the labels of each query, 32 bits each (FOUND.SETTING).
"""

import json
import os
import resource
import sys
import time

side, labels_file, queries_file, kept, found_file, threads, k, rounds, settings = sys.argv[1:10]
threads, k, rounds, settings = int(threads), int(k), int(rounds), json.loads(settings)
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(threads)

import numpy as np  # noqa: E402

labels, queries = np.load(labels_file, mmap_mode="r"), np.ascontiguousarray(np.load(queries_file))
count, dim = labels.shape
build = settings["build"]


def faiss_index():
    import faiss

    faiss.omp_set_num_threads(threads)
    if os.path.exists(kept):
        return faiss.read_index(kept), 0.0
    started = time.perf_counter()
    inner = faiss.METRIC_INNER_PRODUCT
    if side == "faiss-flat":
        index = faiss.IndexFlatIP(dim)
    elif side == "faiss-hnsw":
        index = faiss.IndexHNSWFlat(dim, build["M"], inner)
    elif side == "faiss-hnsw-sq8":
        index = faiss.IndexHNSWSQ(dim, faiss.ScalarQuantizer.QT_8bit, build["M"], inner)
    elif side == "faiss-ivf-sq8":
        index = faiss.IndexIVFScalarQuantizer(faiss.IndexFlatIP(dim), dim, min(build["lists"], max(1, count // 40)), faiss.ScalarQuantizer.QT_8bit, inner)
    if "hnsw" in side:
        index.hnsw.efConstruction = build["efConstruction"]
    if not index.is_trained:
        step = max(1, count // 100_000)
        index.train(np.ascontiguousarray(labels[::step]))
    for start in range(0, count, 65536):
        index.add(np.ascontiguousarray(labels[start : start + 65536]))
    taken = time.perf_counter() - started
    if kept:
        faiss.write_index(index, kept)
    return index, taken


def hnswlib_index():
    import hnswlib

    index = hnswlib.Index(space="ip", dim=dim)
    index.set_num_threads(threads)
    if os.path.exists(kept):
        index.load_index(kept, max_elements=count)
        index.set_num_threads(threads)
        return index, 0.0
    started = time.perf_counter()
    index.init_index(max_elements=count, M=build["M"], ef_construction=build["efConstruction"], random_seed=0)
    index.set_num_threads(threads)
    for start in range(0, count, 65536):
        index.add_items(np.ascontiguousarray(labels[start : start + 65536]), np.arange(start, min(count, start + 65536)))
    taken = time.perf_counter() - started
    if kept:
        index.save_index(kept)
    return index, taken


def usearch_index():
    from usearch.index import Index

    index = Index(ndim=dim, metric="ip", dtype=build["dtype"], connectivity=build["M"], expansion_add=build["efConstruction"])
    if os.path.exists(kept):
        index.load(kept)
        return index, 0.0
    started = time.perf_counter()
    for start in range(0, count, 65536):
        end = min(count, start + 65536)
        index.add(np.arange(start, end), np.ascontiguousarray(labels[start:end]), threads=threads)
    taken = time.perf_counter() - started
    if kept:
        index.save(kept)
    return index, taken


def search(index, setting):
    if side == "hnswlib":
        index.set_ef(setting)
        return index.knn_query(queries, k=k)[0]
    if side.startswith("usearch"):
        index.expansion_search = setting
        return index.search(queries, k, threads=threads).keys
    if "hnsw" in side:
        index.hnsw.efSearch = setting
    elif "ivf" in side:
        index.nprobe = setting
    return index.search(queries, k)[1]


if side == "hnswlib":
    index, built = hnswlib_index()
elif side.startswith("usearch"):
    index, built = usearch_index()
else:
    index, built = faiss_index()
for setting in settings["search"]:
    best, work, found = float("inf"), float("inf"), None
    for _ in range(rounds):
        started, worked = time.perf_counter(), time.process_time()
        found = search(index, setting)
        best, work = min(best, time.perf_counter() - started), min(work, time.process_time() - worked)
    np.asarray(found).astype("<u4").tofile(f"{found_file}.{setting}")
    size = os.path.getsize(kept) if os.path.exists(kept) else 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures = {"name": side, "ef": setting, "build_seconds": built, "seconds": best, "cpu_seconds": work, "index_bytes": size, "peak_bytes": peak}
    print(json.dumps({**figures, "queries_per_second": len(queries) / best}), flush=True)
