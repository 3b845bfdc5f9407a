#!/usr/bin/env bash
# Triton's interpreter (TRITON_INTERPRET=1) rounds tl.fma twice in Triton 3.7.1, and once in 3.9.0.
#
# A GPU computes x * y + z with one rounding. A kernel that is tested in the interpreter of Triton 3.7.1 gives other
# bits there than on every GPU, and its error bounds are checked on the wrong numbers. torch 2.13.0 for CUDA brings
# Triton 3.7.1, so this is what most people test with.
# Example: x = y = 1 + 2^-12, z = -(1 + 2^-11). x * y = 1 + 2^-11 + 2^-24 exactly, so one rounding gives 2^-24. In float32,
# x * y alone rounds to 1 + 2^-11, so two roundings give 0.
#
# Packages: triton 3.7.1 and 3.9.0, torch 2.13.0 (any build), numpy 2. Nothing of gnnexp is used.
# Seen: "3.7.1: 0.0", "3.9.0: 5.960464477539063e-08".
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"${PYTHON:-python3.11}" -m venv "$place/env"
"$place/env/bin/pip" install -q 'torch==2.13.0' 'numpy>=2'

cat > "$place/fma.py" <<'PYTHON'
import torch
import triton
import triton.language as tl


@triton.jit
def multiply_add(x, y, z, out):
    tl.store(out, tl.fma(tl.load(x), tl.load(y), tl.load(z)))


factor = torch.tensor([1 + 2.0**-12])
out = torch.empty(1)
multiply_add[(1,)](factor, factor, torch.tensor([-(1 + 2.0**-11)]), out)
print(f"{triton.__version__}: {out.item()}")
PYTHON

seen=""
for version in 3.7.1 3.9.0; do
    "$place/env/bin/pip" install -q --no-deps "triton==$version"
    seen+="$(TRITON_INTERPRET=1 "$place/env/bin/python" "$place/fma.py")"$'\n'
done
printf '%s' "$seen"
[ "$seen" = $'3.7.1: 0.0\n3.9.0: 5.960464477539063e-08\n' ] || { echo "the behaviour has changed"; exit 1; }
