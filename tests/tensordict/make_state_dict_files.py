"""Writes state_dict_files.json: files that torch.save wrote, each with what is in it.

  python make_state_dict_files.py

It needs torch 2.13.0. state_dict_file_test.cc loads every file. A file is its "bytes", in hexadecimal, and either
"leaves" and "ties", or a part of the "error" that Graft answers with.
"""

import io
import json
import os
from collections import OrderedDict

import torch
from torch import nn

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "state_dict_files.json")


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(2, 3, bias=False)
        self.decoder = nn.Linear(2, 3, bias=False)
        self.decoder.weight = self.encoder.weight
        self.norm = nn.BatchNorm1d(2)


def dicts():
    """Returns what is saved, by name; with options of torch.save, or with what the error says."""
    x = torch.arange(6.0).view(2, 3)
    dtypes = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
              torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex32, torch.complex64,
              torch.complex128]
    return {
        "module": (Tied().state_dict(), {}, ["encoder.weight", "decoder.weight"]),
        "dict": ({"a.b": x, "c": torch.tensor(3)}, {}, None),
        "protocol 5": (OrderedDict({"a": x, "é": x.long()}), {"pickle_protocol": 5}, None),
        "types": ({str(dtype)[6:]: torch.tensor([1, 0, 1]).to(dtype) for dtype in dtypes}, {}, None),
        "parameters": (dict(Tied().named_parameters(remove_duplicate=False)), {}, ["encoder.weight", "decoder.weight"]),
        "views": ({"t": x.t(), "tail": x[1:, 1], "expanded": x[0, :1].expand(4), "none": x[:, :0]}, {}, ["t", "tail"]),
        "empty": ({}, {}, None),
        "number": ({"x": x, "epoch": 3}, {}, "\"epoch\": the number 3, expected a tensor"),
        "checkpoint": ({"model": {"x": x}, "name": "net"}, {}, "\"model\": a dict, expected a tensor"),
        "list": ([x], {}, "found a list"),
        "tensor": (x, {}, "found a tensor"),
        "size": ({"s": torch.Size([1])}, {}, "\"s\": the Python object torch.Size"),
        "key": ({1: x}, {}, "a key is the number 1"),
        "no path": ({"..": x}, {}, "\"..\" is not a path"),
        "leaf and part": ({"a": x, "a.b": x}, {}, "\"a.b\""),
        "sparse": ({"s": x.to_sparse()}, {}, "\"s\": the Python object torch._utils._rebuild_sparse_tensor"),
        "old format": ({"x": x}, {"_use_new_zipfile_serialization": False}, "net.pt"),
    }


def describe(path, tensor):
    numbers = tensor.detach()
    if numbers.is_complex():
        numbers = torch.view_as_real(numbers.to(torch.complex128))
    return {"path": path, "dtype": str(tensor.dtype), "shape": list(tensor.shape), "requires_grad": tensor.requires_grad,
            "values": numbers.to(torch.float64).flatten().tolist()}


def main():
    torch.manual_seed(0)
    stored = {}
    for name, (value, options, said) in dicts().items():
        buffer = io.BytesIO()
        torch.save(value, buffer, **options)
        stored[name] = {"bytes": buffer.getvalue().hex()}
        if isinstance(said, str):
            stored[name]["error"] = said
        else:
            stored[name]["leaves"] = [describe(path, tensor) for path, tensor in value.items()]
            stored[name]["ties"] = [said] if said else []
    with open(FILE, "w") as file:
        file.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in stored.items()) + "\n}\n")


if __name__ == "__main__":
    main()
