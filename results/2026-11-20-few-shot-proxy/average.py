"""Averages the weights of encoders of one shape.

usage: average.py OUT SHARE ENCODER [SHARE ENCODER ...]
"""

import json
import os
import shutil
import struct
import sys

import numpy


def load(folder):
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        data = file.read()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    names = {name: about for name, about in json.loads(data[8:end]).items() if name != "__metadata__"}
    return data[:end], {name: (about, data[end:][slice(*about["data_offsets"])]) for name, about in names.items()}


def main():
    out, *rest = sys.argv[1:]
    encoders = list(zip(map(float, rest[::2]), rest[1::2], strict=True))
    head, first = load(encoders[0][1])
    mean = {name: 0 for name, (about, _) in first.items() if about["dtype"] == "F32"}
    for share, folder in encoders:
        _, tensors = load(folder)
        for name in mean:
            mean[name] = mean[name] + share * numpy.frombuffer(tensors[name][1], numpy.float32).astype(numpy.float64)
    body = bytearray(max(about["data_offsets"][1] for about, _ in first.values()))
    for name, (about, data) in first.items():
        body[slice(*about["data_offsets"])] = mean[name].astype(numpy.float32).tobytes() if name in mean else data
    shutil.copytree(encoders[0][1], out)
    with open(os.path.join(out, "model.safetensors"), "wb") as file:
        file.write(head + body)


if __name__ == "__main__":
    main()
