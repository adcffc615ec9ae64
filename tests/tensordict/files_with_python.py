"""Exchanges files with Graft, both ways: what Python writes, Graft loads and writes again, and Python loads.

  python files_with_python.py bazel-bin/tests/tensordict/copy_tree

It needs torch and tensordict. with_python_test runs it.
"""

import pathlib
import subprocess
import sys
import tempfile

import torch
from tensordict import TensorDict

from make_memmap_folders import trees


def as_bytes(tensor):
    return tensor.detach().resolve_conj().contiguous().flatten().view(torch.uint8) if tensor.numel() else tensor


def check_equal(name, path, got, expected):
    assert got.dtype == expected.dtype and got.shape == expected.shape, (name, path, got, expected)
    assert torch.equal(as_bytes(got), as_bytes(expected)), (name, path, got, expected)


def check_memmap(program, folder):
    for name, tree in trees().items():
        tree.memmap(folder / "from")
        subprocess.run([program, "memmap", folder / "from", folder / "to"], check=True)
        got, expected = TensorDict.load_memmap(folder / "to"), TensorDict.load_memmap(folder / "from")
        assert got.batch_size == expected.batch_size, name
        # Graft has "a.b" as a path, and no parts without leaves.
        leaves = {".".join(key) if isinstance(key, tuple) else key: value for key, value in expected.items(True, True)}
        found = {".".join(key) if isinstance(key, tuple) else key: value for key, value in got.items(True, True)}
        assert found.keys() == leaves.keys(), (name, found.keys(), leaves.keys())
        for path, value in leaves.items():
            check_equal(name, path, found[path], value)
        for key, part in got.items(True):
            if isinstance(part, TensorDict) and name != "dots":
                assert part.batch_size == expected[key].batch_size, (name, key)
        for entry in sorted((folder / "from").rglob("*"), reverse=True):
            entry.rmdir() if entry.is_dir() else entry.unlink()


def state_dicts():
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    net.tied = net[0]
    kinds = {f"a.{key}": value for key, value in trees()["types"].items()}
    kinds.update(trees()["zero elements"].flatten_keys(".").items())
    return {"module": net.state_dict(), "kinds": kinds}


def check_files(program, folder):
    for name, values in state_dicts().items():
        torch.save(values, folder / "from.pt")
        subprocess.run([program, "state_dict", folder / "from.pt", folder / "to.pt"], check=True)
        subprocess.run([program, "archive", folder / "from.pt", folder / "archive.pt"], check=True)
        found = torch.load(folder / "to.pt", weights_only=True)
        _, _, batch_size, leaves, parts = torch.load(folder / "archive.pt", weights_only=True)
        assert batch_size == () and parts == ()
        assert list(found) == list(values) == [path for path, _ in leaves], name
        for path, value in values.items():
            check_equal(name, path, found[path], value)
            check_equal(name, path, dict(leaves)[path], value)
        if name == "module":
            assert found["0.weight"].data_ptr() == found["tied.weight"].data_ptr()


def main():
    with tempfile.TemporaryDirectory() as folder:
        check_memmap(sys.argv[1], pathlib.Path(folder))
        check_files(sys.argv[1], pathlib.Path(folder))
    print("equal both ways:", len(trees()), "folders,", len(state_dicts()), "files")


if __name__ == "__main__":
    main()
