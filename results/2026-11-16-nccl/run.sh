#!/usr/bin/env bash
# What was run on the machine with the GPU: usage run.sh TEST LIBS, the test programs of polytag-nn (lib, data_parallel)
# in this folder. NCCL is the one that PyTorch brought.
set -u
cd "$(dirname "$0")"
nccl="$(python3 -c 'import nvidia.nccl, os; print(os.path.join(list(nvidia.nccl.__path__)[0], "lib"))')"
cuda="$(python3 - <<'PY'
import glob, os, sysconfig
base = sysconfig.get_paths()["purelib"]
print(":".join(sorted({os.path.dirname(p) for p in glob.glob(base + "/nvidia/**/lib*.so*", recursive=True)})))
PY
)"
echo "== without NCCL on the library path"
./data_parallel a_gpu_in_a_world_of_one --ignored --nocapture --exact 2>&1 | grep -E "NCCL|panicked|ok|FAILED" | head -5
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}:$nccl:$cuda"
echo "== NCCL: $nccl"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
echo "== a world of one"
NCCL_DEBUG=VERSION ./data_parallel a_gpu_in_a_world_of_one --ignored --nocapture --exact 2>&1
echo "== rates"
./data_parallel rates_of_a_gpu --ignored --nocapture --exact 2>&1
echo "== tests of worlds and trainings, on the GPU, too"
./lib world:: train:: --nocapture 2>&1 | tail -45
echo "== search in PyTorch"
python3 search_torch.py 2>&1
