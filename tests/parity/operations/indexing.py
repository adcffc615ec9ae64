"""Indices of the batch dims: reading, writing, gathering and masks."""

import torch

from trees import key, paths, tensor, tree, write_tensor

from .registry import NUMBERS, like, misuse, operation, some_dim, tensor_from, with_dims


def _slice(source, size):
    start, stop, step = (source.choice([None, source.randint(-size - 1, size + 1)]) for _ in range(3))
    return {"slice": [start, stop, None if step is None or step < 1 else step]}


def _index(source, sizes):
    """Draws indices for some of the dims."""
    indices, dims = [], list(sizes)
    while dims and source.random() < 0.75:
        size = dims[0]
        kind = source.choice(["int", "slice", "slice", "none", "tensor", "mask", "list", "masks"])
        if kind == "int":
            number = source.randint(-size, size - 1) if size else 0
            indices.append({"int": number + (9 if misuse(source) else 0)})
        elif kind == "slice":
            indices.append(_slice(source, size))
        elif kind == "none":
            indices.append({"none": 0})
            continue
        elif kind in ("tensor", "list") and size:
            if any("tensor" in index or "mask" in index for index in indices):
                continue  # index tensors of shapes that need not broadcast
            shape = [2] if kind == "list" else [source.randint(1, 2) for _ in range(source.randint(0, 2))]
            values = torch.tensor([source.randint(-size, size - 1) for _ in range(torch.Size(shape).numel())])
            indices.append({"tensor": write_tensor(values.reshape(shape))})
        elif kind in ("mask", "masks"):
            if any("tensor" in index or "mask" in index for index in indices):
                continue
            count = 2 if kind == "masks" and len(dims) > 1 else 1
            shape = dims[:count]
            if misuse(source):
                shape = [extent + 1 for extent in shape]
            indices.append({"mask": write_tensor(tensor(source, shape, "bool"))})
            dims = dims[count - 1:]
        else:
            continue
        dims = dims[1:]
    if source.random() < 0.2:
        position = source.randint(0, len(indices))
        if position == len(indices):
            indices.append({"ellipsis": 0})
    if misuse(source):
        indices += [{"slice": [None, None, None]}] * (len(sizes) + 1)
    return indices


def _to_index(indices):
    result = []
    for index in indices:
        (kind, value), = index.items()
        result.append({"int": lambda: value, "slice": lambda: slice(*value), "none": lambda: None,
                       "ellipsis": lambda: Ellipsis, "tensor": lambda: tensor_from(value),
                       "mask": lambda: tensor_from(value)}[kind]())
    return tuple(result) if len(result) != 1 else result[0]


@operation("index", 120)
class _:
    def propose(source):
        td = with_dims(source, 0 if misuse(source) else 1)
        return [td], {"indices": _index(source, td.batch_size) or [{"slice": [0, 1, None]}]}

    def run(td, arguments):
        return td[_to_index(arguments["indices"])]


@operation("index_put_", 50)
class _:
    def propose(source):
        td = with_dims(source, 1)
        indices = _index(source, td.batch_size) or [{"int": 0}]
        try:
            part = td[_to_index(indices)]
        except Exception:
            part = td
        other = like(source, part)
        if source.random() < 0.2:
            other["new"] = tensor(source, list(other.batch_size) + [2], "float")
        if misuse(source):
            other = tree(source, [size + 1 for size in other.batch_size] or [2])
        elif part.batch_dims == 0 and source.random() < 0.2:
            other = tree(source, [2])  # Python takes it, if all its leaves are new
        return [td, other], {"indices": indices}

    def run(td, other, arguments):
        td[_to_index(arguments["indices"])] = other
        return td


@operation("gather", 10)
class _:
    def propose(source):
        td = with_dims(source, 1)
        dim = some_dim(source, td)
        sizes = list(td.batch_size)
        inside = -td.batch_dims <= dim < td.batch_dims
        limit = sizes[dim] if inside else 1
        if inside:
            sizes[dim] = source.randint(1, 3)
        numbers = torch.tensor([source.randint(0, limit - 1) for _ in range(torch.Size(sizes).numel())])
        return [td], {"dim": dim, "index": write_tensor(numbers.reshape(sizes))}

    def run(td, arguments):
        return td.gather(arguments["dim"], tensor_from(arguments["index"]))


@operation("masked_select", 10)
class _:
    def propose(source):
        td = with_dims(source, 1)
        shape = [size + 1 for size in td.batch_size] if misuse(source) else list(td.batch_size)
        return [td], {"mask": write_tensor(tensor(source, shape, "bool"))}

    def run(td, arguments):
        return td.masked_select(tensor_from(arguments["mask"]))


@operation("masked_fill", 10)
class _:
    def propose(source):
        td = with_dims(source, 1, kinds=NUMBERS)
        return [td], {"mask": write_tensor(tensor(source, list(td.batch_size), "bool")), "value": 3}

    def run(td, arguments):
        return td.masked_fill(tensor_from(arguments["mask"]), arguments["value"])


@operation("where", 15)
class _:
    def propose(source):
        td = with_dims(source, 0)
        other = like(source, td)
        if misuse(source):
            other = other.exclude(key(paths(td)[0]))
        return [td, other], {"mask": write_tensor(tensor(source, list(td.batch_size), "bool"))}

    def run(td, other, arguments):
        return td.where(tensor_from(arguments["mask"]), other)
