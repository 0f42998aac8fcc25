"""Tunes a sentence encoder as section III-B of paper 000 says: usage: tune.py TASK ENCODER OUT SEED

Half of the pairs are a document and one of its labels, half a document and a label that it does not have; what is
minimised is the square of their cosine's distance from 1 or 0. Writes OUT-50000 and OUT-250000, by pairs seen.
"""

import json
import random
import shutil
import sys
import time

import torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoTokenizer

task, encoder, out, seed = sys.argv[1:]
SAVED, BATCH = [50_000, 250_000], 64
random.seed(int(seed))
torch.manual_seed(int(seed))
read = lambda name: [json.loads(line) for line in open(f"{task}/{name}.jsonl")]
names = {label["id"]: label["name"] for label in read("labels")}
documents = read("train")
carried = [document.get("labels") or [] for document in documents]
tokenizer = AutoTokenizer.from_pretrained(encoder)
model = AutoModel.from_pretrained(encoder, torch_dtype=torch.float32).cuda().train()
seen = sorted({label for labels in carried for label in labels})
own = [(place, label) for place, labels in enumerate(carried) for label in labels]
random.shuffle(own)
begun = time.time()
whole = [((document.get("title") or "") + " " + document["text"])[:2500] for document in documents]
texts = tokenizer(whole, truncation=True, max_length=256)["input_ids"]
label_texts = {label: tokenizer(names[label], truncation=True, max_length=64)["input_ids"] for label in seen}
pairs = []
for place, label in own[: SAVED[-1] // 2]:
    pairs.append((place, label, 1.0))
    other = random.choice(seen)
    while other in carried[place]:
        other = random.choice(seen)
    pairs.append((place, other, 0.0))
first, rest = pairs[: SAVED[0]], pairs[SAVED[0] :]
random.shuffle(first)
random.shuffle(rest)
pairs = first + rest


def embed(sequences):
    longest = max(map(len, sequences))
    ids = torch.zeros(len(sequences), longest, dtype=torch.long)
    mask = torch.zeros(len(sequences), longest, dtype=torch.long)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = torch.tensor(sequence)
        mask[row, : len(sequence)] = 1
    ids, mask = ids.cuda(), mask.cuda()
    with torch.autocast("cuda", torch.bfloat16):
        states = model(input_ids=ids, attention_mask=mask).last_hidden_state
    states = states.float() * mask[..., None]
    return torch.nn.functional.normalize(states.sum(1) / mask.sum(1, keepdim=True), dim=1)


def save(count):
    target = f"{out}-{count}"
    shutil.copytree(encoder, target, dirs_exist_ok=True)
    weights = {name: value.detach().float().cpu().contiguous() for name, value in model.state_dict().items() if value.is_floating_point()}
    save_file(weights, target + "/model.safetensors", metadata={"format": "pt"})


steps = len(pairs) // BATCH
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=0.01)
rate = lambda step: min(1, (step + 1) / (0.1 * steps)) * max(0, (steps - step) / steps)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
for step in range(steps):
    batch = pairs[step * BATCH : (step + 1) * BATCH]
    left = embed([texts[place] for place, _, _ in batch])
    right = embed([label_texts[label] for _, label, _ in batch])
    wanted = torch.tensor([wanted for _, _, wanted in batch]).cuda()
    loss = ((left * right).sum(1) - wanted).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    if step % 200 == 0:
        print(step, steps, float(loss), time.time() - begun, flush=True)
    if step * BATCH < SAVED[0] <= (step + 1) * BATCH:
        save(SAVED[0])
save(SAVED[-1])
