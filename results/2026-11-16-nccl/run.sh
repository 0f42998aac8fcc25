#!/usr/bin/env bash
# What was run on the machine with the GPU, with the programs that `cargo test -p polytag-nn --no-run` makes of the engine's own tests
# (here: lib) and of tests/data_parallel.rs (here: data_parallel) beside this file.
set -u
cd "$(dirname "$0")"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
echo "== a world of one"
NCCL_DEBUG=VERSION ./data_parallel a_gpu_in_a_world_of_one --ignored --nocapture --exact 2>&1
if [[ "${1:-}" != "--all" ]]; then
  echo "== the same where NCCL is not installed"
  # An empty file in the place of each libnccl, for this command alone.
  unshare -m bash -c '
    for file in $(ldconfig -p | awk "/libnccl/ { print \$NF }"); do mount --bind /dev/null "$(readlink -f "$file")"; done
    ./data_parallel a_gpu_in_a_world_of_one --ignored --nocapture --exact' 2>&1 | grep -E "NCCL|test result"
else
  echo "== rates"
  ./data_parallel rates_of_a_gpu --ignored --nocapture --exact 2>&1
  echo "== tests of worlds and trainings, on the GPU, too"
  ./lib world:: train:: --nocapture 2>&1
fi
echo "== search in PyTorch"
python3 search_torch.py 2>&1
