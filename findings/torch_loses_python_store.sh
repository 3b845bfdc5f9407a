#!/usr/bin/env bash
# torch 2.13.0: a rendezvous store written in Python is lost when its variable goes, though the process group uses it.
#
# torch.distributed.Store may be subclassed, and init_process_group(store=...) takes such a store, for example one that
# signs or logs what ranks tell each other. The default group works. But torch keeps only the half of the object that is
# in C++. If the function that made the store has returned, every later dist.new_group fails with an INTERNAL ASSERT
# "Not implemented", which names neither the store nor the method. So the fault comes long after its cause, in code that
# has nothing to do with it. The documentation of Store and init_process_group does not say that the caller must keep it.
# To be safe: keep a reference to the store as long as groups may be made.
#
# Packages: torch 2.13.0 (any build; here from PyPI), numpy 2. Nothing of gnnexp is used.
# Seen: "kept: a group of 1", "not kept: RuntimeError ... Not implemented."
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"${PYTHON:-python3.11}" -m venv "$place/env"
"$place/env/bin/pip" install -q 'torch==2.13.0' 'numpy>=2'

cat > "$place/store.py" <<'PYTHON'
import os
import sys

os.environ["GLOO_SOCKET_IFNAME"] = "lo"
import torch.distributed as dist


class Plain(dist.Store):
    """Passes everything on."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def set(self, key, value):
        self.inner.set(key, value)

    def get(self, key):
        return self.inner.get(key)

    def wait(self, keys, timeout=None):
        self.inner.wait(keys) if timeout is None else self.inner.wait(keys, timeout)

    def add(self, key, amount):
        return self.inner.add(key, amount)

    def check(self, keys):
        return self.inner.check(keys)

    def set_timeout(self, timeout):
        self.inner.set_timeout(timeout)


def meet():
    store = Plain(dist.HashStore())
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    return store if sys.argv[1] == "kept" else None


kept = meet()
try:
    found = f"a group of {dist.get_world_size(dist.new_group([0]))}"
except RuntimeError as error:
    found = f"RuntimeError ... {str(error).splitlines()[0].rpartition('. ')[2]}"
print(f"{sys.argv[1]}: {found}")
PYTHON

seen=$("$place/env/bin/python" "$place/store.py" kept; "$place/env/bin/python" "$place/store.py" "not kept")
echo "$seen"
[ "$seen" = $'kept: a group of 1\nnot kept: RuntimeError ... Not implemented.' ] || { echo "the behaviour has changed"; exit 1; }
