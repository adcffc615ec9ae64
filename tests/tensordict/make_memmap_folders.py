"""Writes memmap_folders.json: folders that Python's tensordict wrote, each with what is in them.

  python make_memmap_folders.py            # writes the file anew
  python make_memmap_folders.py --check    # compares what is stored with what tensordict writes now

It needs tensordict 0.15.3 and torch 2.13.0. memmap_python_test.cc loads every folder. A folder is its "files", which
are text (meta.json) or bytes in hexadecimal, and either "leaves", by dotted path, with the batch sizes of its "parts", or a part of the "error" that
Graft answers with.
"""

import argparse
import json
import os
import sys
import tempfile
import warnings

import torch
from tensordict import LazyStackedTensorDict, NonTensorData, TensorDict, TensorDictParams, tensorclass

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "memmap_folders.json")
DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
          torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex32, torch.complex64,
          torch.complex128]


@tensorclass
class Pair:
    left: torch.Tensor
    right: torch.Tensor


def of_dtype(dtype):
    if dtype == torch.bool:
        return torch.tensor([True, False, True])
    values = [1.5, 2.25, 3.0]
    if dtype.is_complex:
        return torch.complex(torch.tensor(values), -torch.tensor(values)).to(dtype)
    values = values if dtype.is_floating_point else [1, 0, 100]
    if dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8):
        values = [-value for value in values]
    return torch.tensor(values).to(dtype)


def trees():
    """Returns trees that Graft loads, by name."""
    base = torch.arange(6.0).view(2, 3)
    nested = TensorDict({"q": torch.zeros(2, 1, 0), "k": torch.ones(2, 1, 4, dtype=torch.int8)}, [2, 1])
    nested["deep"] = TensorDict({"w": torch.arange(6).view(2, 1, 3)}, [2, 1, 3])
    return {
        "types": TensorDict({str(dtype)[6:]: of_dtype(dtype) for dtype in DTYPES}, [3]),
        "zero elements": TensorDict({
            "rows": torch.zeros(0, 3), "longs": torch.zeros(0, 3, 2, dtype=torch.long), "flags": torch.zeros(0).bool(),
            "part": TensorDict({"halves": torch.zeros(0, 4, dtype=torch.bfloat16)}, [0, 4])}, [0]),
        "scalars": TensorDict({"a": torch.tensor(3.0), "part": {"n": torch.tensor(-7), "b": torch.tensor(True)}}),
        "batch sizes": TensorDict({"x": torch.ones(2), "n": nested, "same": TensorDict({"y": base}, [2])}, [2]),
        "strides": TensorDict({"t": torch.arange(6.0).view(3, 2).t(), "cut": base[:, ::2], "wide": torch.ones(1).expand(2, 3),
                               "conjugate": torch.tensor([1 + 2j, 3j]).conj()}, [2]),
        "odd names": TensorDict({"k/l": torch.tensor([7, 8]), "a b": torch.tensor([1, 2]), "<>:\"|?*\\%": torch.tensor([3, 4]),
                                 "é☃\n\x7f": torch.tensor([5, 6]), "meta": torch.tensor([9, 0]),
                                 "/": {"%%x": torch.tensor([1, 1])}, "_names": torch.tensor([2, 2]),
                                 "_class": torch.tensor([3, 3]), "_format_version": torch.tensor([4, 4])}, [2]),
        "dots": TensorDict({"a.b": torch.tensor([1, 2]), "a": {"c": torch.tensor([3, 4]), "d.e": torch.tensor([5, 6])}}, [2]),
        "empty parts": TensorDict({"x": torch.ones(2), "none": TensorDict({}, [2, 7]), "n": {"none": {}}}, [2]),
        "no leaves": TensorDict({}, [4]),
        "many kinds": TensorDict({
            "e": torch.zeros(2, 0, 3, dtype=torch.long), "b": torch.tensor([True, False]),
            "h": torch.tensor([1.5, -2.0], dtype=torch.bfloat16), "c": torch.tensor([1 + 2j, 0]),
            "t": torch.arange(6.0).view(3, 2).t(), "x": base[:, ::2],
            "n": TensorDict({"q": torch.zeros(2, 1, 0), "k/l": torch.tensor([7, 8]),
                             "i8": torch.tensor([-1, 127], dtype=torch.int8)}, [2])}, [2]),
        "names of dims": TensorDict({"x": torch.ones(2, 3)}, [2, 3], names=["time", None]),
        "parameters": TensorDict({"p": TensorDictParams(TensorDict({"w": torch.ones(2)}))}),
        "requires grad": TensorDict({"w": torch.ones(2, requires_grad=True)}),
    }


def refused():
    """Returns trees that Graft does not load, by name, with what the message says."""
    x = torch.ones(2)
    return {
        "text": (TensorDict({"x": x, "s": "text"}, [2]), "NonTensorData"),
        "object": (TensorDict({"part": {"o": NonTensorData(3, [2])}}, [2]), "part/o/meta.json"),
        "lazy stack": (LazyStackedTensorDict(TensorDict({"w": x}), TensorDict({"w": x})), "LazyStackedTensorDict"),
        "class": (TensorDict({"pair": Pair(x, x, batch_size=[2])}, [2]), "Pair"),
        "nested tensor": (TensorDict({"n": torch.nested.nested_tensor([x, torch.ones(3)])}), "\"n\""),
        "two dots": (TensorDict({"..": x}, [2]), "\"..\""),
        "no name": (TensorDict({"": x}, [2]), "meta.json"),
        "one path twice": (TensorDict({"a.b": x, "a": {"b": x}}, [2]), "\"b\""),
        "leaf and part": (TensorDict({"a": x, "a.b": x}, [2]), "\"a.b\""),
    }


def files_in(folder):
    found = {}
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(root, name)
            with open(path, "rb") as file:
                content = file.read()
            found[os.path.relpath(path, folder)] = content.decode() if name == "meta.json" else content.hex()
    return found


def numbers(leaf):
    leaf = leaf.detach()
    if leaf.is_complex():
        leaf = torch.view_as_real(leaf.resolve_conj().to(torch.complex128))
    return leaf.to(torch.float64).flatten().tolist()


def as_path(key):
    return ".".join(key) if isinstance(key, tuple) else key


def describe(tree, folder):
    """Says what tensordict finds in the folder."""
    tree.memmap(folder)
    back = TensorDict.load_memmap(folder)
    leaves = [{"path": as_path(key), "dtype": str(leaf.dtype), "shape": list(leaf.shape), "values": numbers(leaf)}
              for key, leaf in back.items(True, True)]
    paths = [leaf["path"] for leaf in leaves]
    parts = {as_path(key): list(part.batch_size) for key, part in back.items(True)
             if isinstance(part, (TensorDict, TensorDictParams)) and any(path.startswith(as_path(key) + ".") for path in paths)}
    return {"files": files_in(folder), "batch_size": list(back.batch_size), "parts": parts, "leaves": leaves}


def folders():
    result = {}
    for name, tree in trees().items():
        with tempfile.TemporaryDirectory() as folder:
            result[name] = describe(tree, folder)
    for name, (tree, error) in refused().items():
        with tempfile.TemporaryDirectory() as folder:
            tree.memmap(folder)
            result[name] = {"files": files_in(folder), "error": error}
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    text = "{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in folders().items()) + "\n}\n"
    if arguments.check:
        with open(FILE) as file:
            if file.read() != text:
                sys.exit("tensordict writes other folders now")
    else:
        with open(FILE, "w") as file:
            file.write(text)


if __name__ == "__main__":
    main()
