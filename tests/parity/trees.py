"""Random trees, and how trees and tensors are written to a file."""

import torch
from tensordict import TensorDict, is_tensor_collection

NAMES = ["a", "b", "c", "w", "bias", "net", "0", "1", "obs"]
KINDS = {
    "float": torch.float32,
    "double": torch.float64,
    "long": torch.int64,
    "bool": torch.bool,
}
NAMES_OF_KINDS = {dtype: name for name, dtype in KINDS.items()}


def tensor(source, shape, kind):
    """Draws a tensor of small numbers that every dtype has exactly."""
    low, high = (0, 1) if kind == "bool" else (-4, 4)
    count = 1
    for size in shape:
        count *= size
    numbers = [source.randint(low, high) * (0.5 if kind in ("float", "double") else 1) for _ in range(count)]
    return torch.tensor(numbers, dtype=KINDS[kind]).reshape(shape)


def tree(source, batch=None, depth=None, kinds=("float", "float", "double", "long", "bool"), beyond=0.2):
    """Draws a tree that has leaves in every part. `beyond`: how likely a part has batch dims of its own."""
    if batch is None:
        batch = [source.choice([0, 1, 2, 2, 3, 3, 4]) for _ in range(source.choice([0, 1, 1, 2, 2, 3]))]
    depth = source.randint(0, 4) if depth is None else depth
    result = TensorDict({}, batch_size=batch)
    names = source.sample(NAMES, source.randint(1, 3))
    for position, name in enumerate(names):
        if depth > 0 and (position == 0 or source.random() < 0.3):
            own = batch + [source.randint(1, 3)] if source.random() < beyond else batch
            result[name] = tree(source, own, depth - 1, kinds, beyond)
        else:
            rest = [source.randint(1, 3) for _ in range(source.choice([0, 0, 1, 2]))]
            result[name] = tensor(source, batch + rest, source.choice(kinds))
    return result


def paths(td):
    """Returns the dotted paths of the leaves, in order."""
    return [".".join(key) if isinstance(key, tuple) else key for key in td.keys(True, True)]


def parts(td, prefix=""):
    """Returns the parts below the tree itself, as pairs of a dotted path and a tree."""
    result = []
    for key, value in td.items():
        if is_tensor_collection(value):
            result += [(prefix + key, value)] + parts(value, prefix + key + ".")
    return result


def key(path):
    names = tuple(path.split("."))
    return names if len(names) > 1 else names[0]


def write_tensor(value):
    value = value.detach()
    numbers = value.reshape(-1).tolist()
    if value.dtype == torch.bool:
        numbers = [int(number) for number in numbers]
    if value.is_floating_point():  # JSON has no infinite numbers, and 0.5 needs no more digits
        numbers = [int(number) if number.is_integer() else number if number - number == 0 else str(number)
                   for number in numbers]
    return [NAMES_OF_KINDS[value.dtype], list(value.shape), numbers]


def write(value):
    """Returns what JSON has of a tree, a tensor, or a list of those."""
    if is_tensor_collection(value):
        return {
            "batch": list(value.batch_size),
            "parts": {path: list(part.batch_size) for path, part in parts(value) if len(part.keys(True, True))},
            "leaves": {path: write_tensor(value[key(path)]) for path in paths(value)},
        }
    if isinstance(value, torch.Tensor):
        return write_tensor(value)
    if isinstance(value, (list, tuple)):
        return [write(element) for element in value]
    return value
