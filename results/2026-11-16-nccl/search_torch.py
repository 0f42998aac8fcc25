"""Exact search over 100 million label vectors on one GPU, in PyTorch: what the hardware gives to a plain program.

Random unit vectors of 384 numbers; scores in chunks of labels, the best 100 of each chunk, the best 100 of those.
Prints milliseconds for a batch of queries, medians of five after one to warm up.
"""
import time

import torch

DIMENSION, LABELS, K = 384, 100_000_000, 100
gpu = torch.device("cuda")
torch.manual_seed(0)


def vectors(count, kind):
    rows = torch.empty((count, DIMENSION), dtype=kind, device=gpu)
    step = 1_000_000
    for at in range(0, count, step):
        part = torch.nn.functional.normalize(torch.randn((min(step, count - at), DIMENSION), device=gpu), dim=1)
        rows[at : at + step] = (part * 127 * 4).round().clamp(-127, 127).to(kind) if kind == torch.int8 else part.to(kind)
    return rows


def search(labels, queries, chunk):
    best = []
    for at in range(0, len(labels), chunk):
        part = labels[at : at + chunk]
        scores = torch._int_mm(queries, part.T) if labels.dtype == torch.int8 else queries @ part.T
        value, place = torch.topk(scores, K, dim=1)
        best.append((value, place + at))
    value, which = torch.topk(torch.cat([value for value, _ in best], 1), K, dim=1)
    return value, torch.gather(torch.cat([place for _, place in best], 1), 1, which)


def scan(labels, queries, chunk):
    for at in range(0, len(labels), chunk):
        part = labels[at : at + chunk]
        torch._int_mm(queries, part.T) if labels.dtype == torch.int8 else queries @ part.T


def timed(work):
    work()
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return sorted(times)[2] * 1e3


print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
source = torch.empty(4 << 30, dtype=torch.uint8, device=gpu)
target = torch.empty_like(source)
milliseconds = timed(lambda: target.copy_(source))
print(f"a copy on the device: {2 * 4.294967296 / milliseconds:.2f} TB/s, bytes read and written", flush=True)
del source, target
for kind in (torch.float16, torch.int8):
    labels = vectors(LABELS, kind)
    size = labels.numel() * labels.element_size() / 1e9
    for count in (1, 32, 256, 1024):
        # Products of 8-bit integers want 17 rows at least.
        queries = vectors(max(count, 32) if kind == torch.int8 else count, kind)
        chunk = 1_000_000 if count >= 256 else 4_000_000
        try:
            whole = timed(lambda: search(labels, queries, chunk))
            products = timed(lambda: scan(labels, queries, chunk))
        except RuntimeError as error:
            print(f"{kind}, {count} queries: {str(error).splitlines()[0]}", flush=True)
            continue
        print(
            f"{kind}, {LABELS:,} labels, {size:.1f} GB, {count} queries: {whole:.1f} ms, {count / whole * 1e3:.0f} queries a second;"
            f" products alone {products:.1f} ms",
            flush=True,
        )
    del labels
    torch.cuda.empty_cache()
