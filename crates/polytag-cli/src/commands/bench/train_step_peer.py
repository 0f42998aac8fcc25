"""A training step of a BERT-shaped encoder in PyTorch: the peer of `polytag bench train-step`.

Post-norm encoder, mean pooling, unit length, InfoNCE between the halves of the batch; or with labels binary
cross-entropy over them, from the first token and perhaps from attention of every label to the first layer. AdamW, bf16
autocast on a GPU. The job comes as JSON on standard input; batches are lists of lengths, each padded to its longest
text, and padding is masked, as PyTorch users do. Prints one line of JSON: milliseconds a step (median), real
tokens a second, peak memory."""
import json
import statistics
import sys
import time
from types import SimpleNamespace

job = json.load(sys.stdin, object_hook=lambda fields: SimpleNamespace(**fields))

import torch
import torch.nn.functional as F
from torch import nn

on_gpu = job.device != "cpu"
torch.set_num_threads(job.threads)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(job.hidden, 3 * job.hidden), nn.Linear(job.hidden, job.hidden)
        self.up, self.down = nn.Linear(job.hidden, job.inner), nn.Linear(job.inner, job.hidden)
        self.norms = nn.ModuleList(nn.LayerNorm(job.hidden, eps=1e-12) for _ in range(2))

    def forward(self, x, mask):
        batch, length, hidden = x.shape
        qkv = self.qkv(x).view(batch, length, 3, job.heads, hidden // job.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], attn_mask=mask)
        x = self.norms[0](x + self.out(attended.transpose(1, 2).reshape(batch, length, hidden)))
        return self.norms[1](x + self.down(F.gelu(self.up(x))))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(job.vocabulary, job.hidden)
        self.positions = nn.Embedding(job.positions, job.hidden)
        self.norm = nn.LayerNorm(job.hidden, eps=1e-12)
        self.layers = nn.ModuleList(Layer() for _ in range(job.layers))
        if job.labels:
            self.output = nn.Linear(job.hidden, job.labels)
            nn.init.constant_(self.output.bias, -5.0)
        if job.looking:
            self.queries = nn.Parameter(0.02 * torch.randn(job.labels, job.hidden))
            self.expected = nn.Parameter(0.02 * torch.randn(job.labels, job.hidden))

    def forward(self, ids, present):
        x = self.norm(self.words(ids) + self.positions.weight[: ids.shape[1]])
        mask = present[:, None, None, :]
        first = None
        for layer in self.layers:
            x = layer(x, mask)
            first = x if first is None else first
        if job.labels:
            return [self.output(x[:, 0]), *([self.looked(first, present)] if job.looking else [])]
        weights = present[:, :, None].float()
        return F.normalize((x.float() * weights).sum(1) / weights.sum(1), dim=1)


    def looked(self, tokens, present):
        weights = torch.einsum("bth,lh->blt", tokens, self.queries) / job.hidden**0.5
        weights = weights.masked_fill(~present[:, None, :], float("-inf")).softmax(-1)
        found = torch.einsum("blt,bth->blh", weights.to(tokens.dtype), tokens)
        return (found.float() * self.expected).sum(-1) + self.output.bias


def carried(texts, generator):
    """A one for each label that a text carries."""
    ones = torch.zeros(texts, job.labels)
    ones.scatter_(1, torch.randint(0, job.labels, (texts, 5), generator=generator), 1.0)
    return ones.to(job.device)


def padded(lengths, generator):
    longest = job.pad_to or max(lengths)
    ids = torch.randint(1, job.vocabulary, (len(lengths), longest), generator=generator)
    present = torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]
    return ids.to(job.device), present.to(job.device)


def synchronise():
    if on_gpu:
        torch.cuda.synchronize()


if on_gpu:
    torch.cuda.set_device(job.device)
    torch.backends.cuda.matmul.allow_tf32 = True
torch.manual_seed(0)
model = Encoder().to(job.device)
encode = torch.compile(model) if job.mode == "compile" else model
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.01, fused=on_gpu)
generator = torch.Generator().manual_seed(42)
inputs = [padded(lengths, generator) for lengths in job.batches]
labels = [carried(len(lengths), generator) for lengths in job.batches] if job.labels else []
# Whole rounds, so that the first measured batch is the first one, as it is for polytag.
warm = len(inputs) * -(-8 // len(inputs))
seconds, tokens = [], 0
for step in range(warm + job.steps):
    which = step % len(inputs)
    ids, present = inputs[which]
    synchronise()
    start = time.perf_counter()
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=on_gpu):
        rows = encode(ids, present)
    if job.labels:
        losses = [F.binary_cross_entropy_with_logits(scores.float(), labels[which], reduction="sum") for scores in rows]
        (sum(losses) / len(ids)).backward()
    else:
        half = len(rows) // 2
        scores = rows[:half].float() @ rows[half : 2 * half].float().T / 0.05
        F.cross_entropy(scores, torch.arange(half, device=scores.device)).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    synchronise()
    if step >= warm:
        seconds.append(time.perf_counter() - start)
        tokens += sum(job.batches[which])
figures = {
    "name": f"torch {torch.__version__} {job.mode}",
    "milliseconds": 1e3 * statistics.median(seconds),
    "tokens_per_second": tokens / sum(seconds),
    "peak_bytes": torch.cuda.max_memory_allocated() if on_gpu else None,
}
print(json.dumps(figures))
