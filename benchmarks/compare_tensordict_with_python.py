#!/usr/bin/env python3
"""What a tree of small leaves costs here and in Python, measured in one run.

    ./bazelw build //benchmarks:tensordict_benchmark
    ~/.cache/graft/venv/bin/python benchmarks/compare_tensordict_with_python.py bazel-bin/benchmarks/tensordict_benchmark

Python's forms are those of tensordict on the same tree, with the same leaves.
"""

import os
import shutil
import tempfile

import side_by_side
import torch
from tensordict import TensorDict

MEMBERS = 64


def key_of(i):
    return f"block{i // 16}", f"layer{i // 4 % 4}", ("query", "key", "value", "out")[i % 4]


def make_tree(leaves):
    tree = TensorDict({})
    for i in range(leaves):
        tree[key_of(i)] = torch.zeros(4)
    return tree


def iterate(tree):
    length = 0
    for key, leaf in tree.items(True, True):
        length += len(key) + (leaf is not None)
    return length


def lock(tree):
    tree.lock_()
    tree.unlock_()


def forms(leaves, folder):
    """What to run by its name, and the benchmark to compare it with."""
    tree, other = make_tree(leaves), make_tree(leaves)
    flat = tree.flatten_keys("/")
    key, leaf = key_of(leaves // 2), torch.zeros(4)
    name = "/".join(key)
    half = [key_of(i) for i in range(0, leaves, 2)]
    members = [tree.clone() for _ in range(MEMBERS)]
    stacked = torch.stack(members)
    file, mapped = os.path.join(folder, f"{leaves}.pt"), os.path.join(folder, str(leaves))
    torch.save(tree, file)
    tree.memmap(mapped)
    return {
        "nested get, td[key]": (lambda: tree[key], "Get"),
        "flat get, td[name]": (lambda: flat[name], "GetFlat"),
        "set": (lambda: tree.set(key, leaf), "Set"),
        "iterate, items(True, True)": (lambda: iterate(tree), "Iterate"),
        "select half": (lambda: tree.select(*half), "Select"),
        "shallow copy": (lambda: tree.copy(), "Copy"),
        "lock and unlock": (lambda: lock(tree), "Lock"),
        "map, apply(leaf * 0.5)": (lambda: tree.apply(lambda one: one * 0.5), "Map"),
        "add two trees": (lambda: tree + other, "Add"),
        "deep clone": (lambda: tree.clone(), "Clone"),
        "consolidate": (lambda: tree.consolidate(), "Consolidate"),
        "stack of 64": (lambda: torch.stack(members), "Stack"),
        "index, td[3]": (lambda: stacked[3], "Index"),
        "save, torch.save": (lambda: torch.save(tree, file), "Save"),
        "load, torch.load": (lambda: torch.load(file, weights_only=False), "Load"),
        "save, memmap": (lambda: tree.memmap(mapped), "SaveMemmap"),
        "load, load_memmap": (lambda: TensorDict.load_memmap(mapped), "LoadMemmap"),
    }


def main():
    parser = side_by_side.parser(__doc__, "//benchmarks:tensordict_benchmark")
    parser.add_argument("--leaves", nargs="+", type=int, default=[10, 184, 10000], choices=[10, 184, 10000])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp()
    try:
        with torch.no_grad():
            side_by_side.compare(
                {
                    (f"{leaves} leaves", form): (run, f"BM_{name}/{leaves}")
                    for leaves in arguments.leaves
                    for form, (run, name) in forms(leaves, folder).items()
                },
                arguments,
            )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    side_by_side.keep_memory()
    main()
