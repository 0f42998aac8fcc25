"""Vectors of texts by transformers, through torch or onnxruntime: the peer of `polytag bench encode`.

Standard input: a line of JSON with the job and the texts, then polytag's vectors as 32-bit floats. Batches
in the order of the texts, padded to their longest; the mean over tokens, made one long. Prints one line of
JSON: the seconds of the best pass, and how far polytag's vectors are off at most."""
import io
import json
import os
import sys
import time

job = json.loads(sys.stdin.buffer.readline())
os.environ["OMP_NUM_THREADS"] = str(job["threads"])
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

torch.set_num_threads(job["threads"])
texts, device = job["texts"], job["device"]
on_gpu = device != "cpu"
ours = np.frombuffer(sys.stdin.buffer.read(), dtype="<f4").reshape(len(texts), -1)
tokenizer = AutoTokenizer.from_pretrained(job["folder"])


def through_torch():
    model = AutoModel.from_pretrained(job["folder"]).eval().to(device)

    def states(batch):
        with torch.inference_mode(), torch.autocast("cuda", dtype=torch.bfloat16, enabled=on_gpu):
            return model(**batch.to(device)).last_hidden_state.float().cpu().numpy()

    return f"torch {torch.__version__}", states


class Exported(torch.nn.Module):
    """The model with the two inputs that all families have, in a fixed order."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask):
        return self.model(input_ids=ids, attention_mask=mask).last_hidden_state


def through_onnxruntime():
    import onnxruntime

    provider = "CUDAExecutionProvider" if on_gpu else "CPUExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise SystemExit(f"onnxruntime has no {provider}")
    model = AutoModel.from_pretrained(job["folder"], attn_implementation="eager").eval()
    example = torch.ones(2, 16, dtype=torch.long)
    free = {0: "texts", 1: "tokens"}
    graph = io.BytesIO()
    torch.onnx.export(
        Exported(model),
        (example, example),
        graph,
        input_names=["ids", "mask"],
        output_names=["states"],
        dynamic_axes={"ids": free, "mask": free, "states": free},
        opset_version=17,
        dynamo=False,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = job["threads"], 1
    session = onnxruntime.InferenceSession(graph.getvalue(), options, providers=[provider])

    def states(batch):
        inputs = {"ids": batch["input_ids"].numpy(), "mask": batch["attention_mask"].numpy()}
        return session.run(None, inputs)[0]

    return f"onnxruntime {onnxruntime.__version__}", states


name, states = through_torch() if job["engine"] == "torch" else through_onnxruntime()


def encode():
    vectors = []
    for first in range(0, len(texts), job["batch"]):
        batch = tokenizer(
            texts[first : first + job["batch"]],
            padding=True,
            truncation=True,
            max_length=job["max_tokens"],
            return_tensors="pt",
        )
        present = batch["attention_mask"].numpy()[:, :, None].astype(np.float32)
        means = (states(batch) * present).sum(axis=1) / present.sum(axis=1)
        vectors.append(means / np.linalg.norm(means, axis=1, keepdims=True))
    return np.concatenate(vectors)


best = float("inf")
for _ in range(job["passes"]):
    start = time.perf_counter()
    vectors = encode()
    best = min(best, time.perf_counter() - start)
cosines = (ours.astype(np.float64) * vectors).sum(axis=1)
print(json.dumps({"name": name, "seconds": best, "least_cosine": float(cosines.min())}))
