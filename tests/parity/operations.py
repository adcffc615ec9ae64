"""The operations of the cases: how arguments for each are drawn, and what Python does.

An operation has the trees it works on and other arguments that JSON can hold. A share of the arguments is drawn wrong on
purpose: what raises in Python must raise in Graft.
"""

import dataclasses
from typing import Callable

import torch
from tensordict import TensorDict, pad_sequence

from trees import key, parts, paths, tensor, tree, write_tensor

OPERATIONS = {}
MISUSE = 0.15
NUMBERS = ("float", "float", "double", "long")
FLOATS = ("float", "double")


@dataclasses.dataclass
class Operation:
    propose: Callable  # random source -> trees, arguments
    run: Callable  # trees and arguments -> result
    weight: int


def operation(name, weight=10):
    """Registers a class with the functions `propose(source)` and `run(*trees, arguments)`."""

    def register(cls):
        OPERATIONS[name] = Operation(cls.propose, cls.run, weight)
        return cls

    return register


def misuse(source):
    return source.random() < MISUSE


def like(source, td):
    """Returns a tree of the structure of `td` with other numbers."""
    return td.apply(lambda leaf: tensor(source, list(leaf.shape), _kind(leaf)))


def _kind(leaf):
    return str(leaf.dtype).removeprefix("torch.").replace("float32", "float").replace("float64", "double").replace(
        "int64", "long")


def with_dims(source, low, high=3, **options):
    """Draws a tree of at least `low` batch dims."""
    sizes = [source.choice([1, 2, 2, 3]) for _ in range(source.randint(low, high))]
    return tree(source, sizes, **options)


def some_dim(source, td, places=None):
    dims = td.batch_dims if places is None else places
    if misuse(source) or dims == 0:
        return source.choice([dims, -dims - 1, dims + 2])
    return source.randint(-dims, dims - 1)


def tensor_from(written):
    kind, shape, numbers = written
    return torch.tensor(numbers, dtype={"long": torch.int64, "bool": torch.bool, "float": torch.float32,
                                        "double": torch.float64}[kind]).reshape(shape)


# --- Keys and values


@operation("get", 20)
class _:
    def propose(source):
        td = tree(source)
        path = source.choice(paths(td))
        if misuse(source):
            path = source.choice([path + ".x", "zz", "a.zz", path[:-1] or "y"])
        return [td], {"path": path}

    def run(td, arguments):
        return td[key(arguments["path"])]


@operation("subtree", 15)
class _:
    def propose(source):
        td = tree(source, depth=source.randint(1, 4))
        names = [path for path, _ in parts(td)]
        return [td], {"path": "zz" if misuse(source) or not names else source.choice(names)}

    def run(td, arguments):
        return td[key(arguments["path"])]


@operation("set", 25)
class _:
    def propose(source):
        td = tree(source)
        old = source.choice(paths(td))
        path = source.choice([old, "new", "new.part.leaf", old.rpartition(".")[0] + ".new" if "." in old else "n"])
        sizes = list(td.batch_size)
        around = path.rpartition(".")[0]
        for name, part in parts(td):
            if around == name or around.startswith(name + "."):
                sizes = list(part.batch_size)
        sizes = sizes + [source.randint(1, 3) for _ in range(source.randint(0, 2))]
        if misuse(source):
            sizes = [size + 1 for size in sizes] or [2]
            path = source.choice([path, old + ".x"])
        if source.random() < 0.1:
            td.lock_()
        return [td], {"path": path, "value": write_tensor(tensor(source, sizes, "float"))}

    def run(td, arguments):
        return td.clone(recurse=False).lock_().set(*_set(td, arguments)) if td.is_locked else td.set(
            *_set(td, arguments))


def _set(td, arguments):
    return key(arguments["path"]), tensor_from(arguments["value"])


@operation("set_tree", 15)
class _:
    def propose(source):
        td = tree(source)
        names = [path for path, _ in parts(td)]
        path = source.choice(names + ["new", "new.part"])
        batch = list(td.batch_size)
        for name, part in parts(td):
            if path.rpartition(".")[0] == name:
                batch = list(part.batch_size)
        if source.random() < 0.3:
            batch = batch + [2]
        elif misuse(source) and batch:
            batch = [size + 1 for size in batch]
        elif source.random() < 0.2 and batch:
            return [td, tree(source, batch).apply(lambda x: x, batch_size=batch[:-1])], {"path": path}
        return [td, tree(source, batch, depth=source.randint(0, 2))], {"path": path}

    def run(td, other, arguments):
        return td.set(key(arguments["path"]), other)


@operation("set_", 10)
class _:
    def propose(source):
        td = tree(source)
        path = source.choice(paths(td))
        value = td[key(path)]
        shape = list(value.shape)
        if misuse(source):
            path, shape = source.choice([("zz", shape), (path, [size + 1 for size in shape] or [2])])
        return [td], {"path": path, "value": write_tensor(tensor(source, shape, source.choice(["float", "long"])))}

    def run(td, arguments):
        return td.set_(key(arguments["path"]), tensor_from(arguments["value"]))


@operation("update", 20)
class _:
    def propose(source):
        td = tree(source)
        other = like(source, td)
        if source.random() < 0.5:
            other = other.select(key(source.choice(paths(other))))
        if source.random() < 0.5:
            other["new"] = tensor(source, list(td.batch_size) + [2], "float")
        if misuse(source):
            other = tree(source, [size + 1 for size in td.batch_size] + [2])
        if source.random() < 0.15:
            td.lock_()
        return [td, other], {"inplace": source.random() < 0.4}

    def run(td, other, arguments):
        return td.update(other, inplace=arguments["inplace"])


@operation("update_", 10)
class _:
    def propose(source):
        td = tree(source)
        other = like(source, td)
        if source.random() < 0.5:
            other = other.select(key(source.choice(paths(other))))
        if misuse(source):
            other["new"] = tensor(source, list(td.batch_size) + [2], "float")
        return [td, other], {}

    def run(td, other, arguments):
        return td.update_(other)


def _some_paths(source, td):
    names = paths(td) + [path for path, _ in parts(td)]
    chosen = source.sample(names, source.randint(0, min(3, len(names))))
    return chosen + ["zz"] if misuse(source) else chosen


@operation("select", 20)
class _:
    def propose(source):
        td = tree(source)
        return [td], {"paths": _some_paths(source, td), "strict": source.random() < 0.7}

    def run(td, arguments):
        return td.select(*map(key, arguments["paths"]), strict=arguments["strict"])


@operation("exclude", 15)
class _:
    def propose(source):
        td = tree(source)
        return [td], {"paths": _some_paths(source, td)}

    def run(td, arguments):
        return td.exclude(*map(key, arguments["paths"]))


@operation("split_keys", 10)
class _:
    def propose(source):
        td = tree(source)
        names = paths(td)
        source.shuffle(names)
        first = names[: source.randint(0, 2)]
        second = [name for name in names[len(first):][: source.randint(0, 2)]]
        return [td], {"lists": [first, second + (["zz"] if misuse(source) else [])]}

    def run(td, arguments):
        return list(td.split_keys(*[[key(path) for path in part] for part in arguments["lists"]]))


@operation("flatten_keys", 10)
class _:
    def propose(source):
        td = tree(source)
        if source.random() < 0.3 and parts(td):
            path = next(path for path in paths(td) if "." in path)
            td[path.replace(".", "/")] = tensor(source, list(td.batch_size), "float")  # collides
        return [td], {}

    def run(td, arguments):
        return td.flatten_keys("/")


@operation("unflatten_keys", 10)
class _:
    def propose(source):
        td = tree(source).flatten_keys("/")
        if source.random() < 0.25 and any("/" in name for name in td.keys()):
            name = next(name for name in td.keys() if "/" in name)
            td[name.rpartition("/")[0]] = tensor(source, list(td.batch_size), "float")  # a leaf where a part will be
        return [td], {}

    def run(td, arguments):
        return td.unflatten_keys("/")


@operation("pop", 8)
class _:
    def propose(source):
        td = tree(source)
        return [td], {"path": "zz" if misuse(source) else source.choice(paths(td))}

    def run(td, arguments):
        value = td.pop(key(arguments["path"]))
        return [value, td]


@operation("erase", 8)
class _:
    def propose(source):
        td = tree(source)
        if source.random() < 0.2:
            td.lock_()
        return [td], {"path": "zz" if misuse(source) else source.choice(paths(td))}

    def run(td, arguments):
        return td.del_(key(arguments["path"]))


@operation("rename_key", 8)
class _:
    def propose(source):
        td = tree(source)
        names = paths(td)
        return [td], {"from": "zz" if misuse(source) else source.choice(names),
                      "to": source.choice(names) if misuse(source) else source.choice(["new", "new.leaf"])}

    def run(td, arguments):
        return td.rename_key_(key(arguments["from"]), key(arguments["to"]), safe=True)


@operation("paths", 5)
class _:
    def propose(source):
        return [tree(source)], {}

    def run(td, arguments):
        return paths(td)


@operation("numel", 5)
class _:
    def propose(source):
        return [tree(source)], {}

    def run(td, arguments):
        return td.param_count()


@operation("bytes", 3)
class _:
    def propose(source):
        return [tree(source)], {}

    def run(td, arguments):
        return td.bytes()


# --- Batch dims


@operation("set_batch_size", 20)
class _:
    def propose(source):
        td = with_dims(source, 0)
        sizes = list(td.batch_size)
        if misuse(source):
            sizes = sizes + [7] if source.random() < 0.5 else [size + 1 for size in sizes]
        elif source.random() < 0.4:
            leaf = source.choice(paths(td))
            sizes = list(td[key(leaf)].shape)[: len(sizes) + 1]
        else:
            sizes = sizes[: source.randint(0, len(sizes))]
        return [td], {"sizes": sizes}

    def run(td, arguments):
        td.batch_size = arguments["sizes"]
        return td


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
        return [td, other], {"indices": indices}

    def run(td, other, arguments):
        td[_to_index(arguments["indices"])] = other
        return td


def _shape_of(source, sizes):
    """Draws a shape of as many elements."""
    count = 1
    for size in sizes:
        count *= size
    shape, rest = [], count
    for _ in range(source.randint(0, 2)):
        divisors = [number for number in range(1, rest + 1) if rest % number == 0] or [1]
        shape.append(source.choice(divisors))
        rest //= shape[-1]
    shape.append(rest)
    if misuse(source):
        shape[0] += 1
    elif source.random() < 0.3 and count:
        shape[source.randrange(len(shape))] = -1
    return shape


for _name in ("view", "reshape"):
    @operation(_name, 25)
    class _:
        def propose(source):
            td = with_dims(source, 1)
            return [td], {"sizes": _shape_of(source, td.batch_size)}

        run = (lambda name: lambda td, arguments: getattr(td, name)(*arguments["sizes"]))(_name)


@operation("flatten", 15)
class _:
    def propose(source):
        td = with_dims(source, 1)
        first = source.randint(0, td.batch_dims - 1)
        last = source.randint(first, td.batch_dims - 1)
        if misuse(source):
            last = td.batch_dims + 1
        return [td], {"start": first, "end": last}

    def run(td, arguments):
        return td.flatten(arguments["start"], arguments["end"])


@operation("unflatten", 15)
class _:
    def propose(source):
        td = with_dims(source, 1)
        dim = source.randint(0, td.batch_dims - 1)
        return [td], {"dim": dim, "sizes": _shape_of(source, [td.batch_size[dim]])}

    def run(td, arguments):
        return td.unflatten(arguments["dim"], arguments["sizes"])


@operation("permute", 20)
class _:
    def propose(source):
        td = with_dims(source, 1)
        dims = list(range(td.batch_dims))
        source.shuffle(dims)
        dims = [dim - td.batch_dims if source.random() < 0.2 else dim for dim in dims]
        if misuse(source):
            dims = dims[:-1] if source.random() < 0.5 else dims + [0]
        return [td], {"dims": dims}

    def run(td, arguments):
        return td.permute(*arguments["dims"])


@operation("transpose", 15)
class _:
    def propose(source):
        td = with_dims(source, 1)
        return [td], {"dim0": some_dim(source, td), "dim1": some_dim(source, td)}

    def run(td, arguments):
        return td.transpose(arguments["dim0"], arguments["dim1"])


@operation("movedim", 10)
class _:
    def propose(source):
        td = with_dims(source, 1)
        return [td], {"source": [some_dim(source, td)], "destination": [some_dim(source, td)]}

    def run(td, arguments):
        return td.movedim(arguments["source"][0], arguments["destination"][0])


@operation("squeeze", 15)
class _:
    def propose(source):
        td = with_dims(source, 1)
        return [td], {"dim": source.choice([None, some_dim(source, td)])}

    def run(td, arguments):
        return td.squeeze() if arguments["dim"] is None else td.squeeze(arguments["dim"])


@operation("unsqueeze", 15)
class _:
    def propose(source):
        td = with_dims(source, 0)
        return [td], {"dim": some_dim(source, td, td.batch_dims + 1)}

    def run(td, arguments):
        return td.unsqueeze(arguments["dim"])


@operation("expand", 20)
class _:
    def propose(source):
        td = with_dims(source, 0)
        sizes = [source.randint(1, 3) if size == 1 else size for size in td.batch_size]
        sizes = [source.randint(1, 2) for _ in range(source.randint(0, 2))] + sizes
        if misuse(source) and sizes:
            sizes[-1] += 1
        return [td], {"sizes": sizes}

    def run(td, arguments):
        return td.expand(*arguments["sizes"])


@operation("repeat", 10)
class _:
    def propose(source):
        td = with_dims(source, 1)
        count = td.batch_dims - 1 if misuse(source) else td.batch_dims
        return [td], {"repeats": [source.randint(1, 2) for _ in range(count)]}

    def run(td, arguments):
        return td.repeat(*arguments["repeats"])


@operation("repeat_interleave", 8)
class _:
    def propose(source):
        td = with_dims(source, 1)
        return [td], {"repeats": source.randint(1, 3), "dim": some_dim(source, td)}

    def run(td, arguments):
        return td.repeat_interleave(arguments["repeats"], dim=arguments["dim"])


@operation("flip", 8)
class _:
    def propose(source):
        td = with_dims(source, 1)
        return [td], {"dims": [some_dim(source, td)]}

    def run(td, arguments):
        return td.flip(arguments["dims"])


@operation("roll", 8)
class _:
    def propose(source):
        td = with_dims(source, 1)
        return [td], {"shifts": [source.randint(-2, 2)], "dims": [some_dim(source, td)]}

    def run(td, arguments):
        return td.roll(arguments["shifts"], arguments["dims"])


@operation("unbind", 15)
class _:
    def propose(source):
        td = with_dims(source, 1)
        return [td], {"dim": some_dim(source, td)}

    def run(td, arguments):
        return list(td.unbind(arguments["dim"]))


@operation("split", 20)
class _:
    def propose(source):
        td = with_dims(source, 1)
        dim = some_dim(source, td)
        size = td.batch_size[dim] if -td.batch_dims <= dim < td.batch_dims else 2
        if source.random() < 0.5:
            return [td], {"size": 0 if misuse(source) else source.randint(1, 3), "dim": dim}
        first = source.randint(0, size)
        return [td], {"size": [first, size - first + (1 if misuse(source) else 0)], "dim": dim}

    def run(td, arguments):
        return list(td.split(arguments["size"], arguments["dim"]))


@operation("chunk", 15)
class _:
    def propose(source):
        td = with_dims(source, 1)
        return [td], {"chunks": 0 if misuse(source) else source.randint(1, 4), "dim": some_dim(source, td)}

    def run(td, arguments):
        return list(td.chunk(arguments["chunks"], arguments["dim"]))


def _members(source, td):
    members = [td, like(source, td), like(source, td)][: source.randint(1, 3)]
    if misuse(source):
        change = source.choice(["key", "batch", "missing"])
        if change == "key":
            members.append(like(source, td).set("zz", tensor(source, list(td.batch_size), "float")))
        elif change == "batch":
            members.append(tree(source, [size + 1 for size in td.batch_size] + [2]))
        else:
            members.append(like(source, td).exclude(key(paths(td)[0])))
    return members


@operation("stack", 30)
class _:
    def propose(source):
        td = with_dims(source, 0)
        return _members(source, td), {"dim": some_dim(source, td, td.batch_dims + 1)}

    def run(*arguments):
        return torch.stack(list(arguments[:-1]), arguments[-1]["dim"])


@operation("cat", 25)
class _:
    def propose(source):
        td = with_dims(source, 1)
        return _members(source, td), {"dim": some_dim(source, td)}

    def run(*arguments):
        return torch.cat(list(arguments[:-1]), arguments[-1]["dim"])


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


@operation("pad_sequence", 10)
class _:
    def propose(source):
        td = with_dims(source, 1, 2, beyond=0, kinds=NUMBERS)
        rest = list(td.batch_size[1:])
        longer = td.apply(lambda leaf: tensor(source, [leaf.shape[0] + 1, *leaf.shape[1:]], _kind(leaf)),
                          batch_size=[td.batch_size[0] + 1, *rest])
        return [td, longer], {"value": source.choice([0, 2])}

    def run(td, longer, arguments):
        return pad_sequence([td, longer], padding_value=arguments["value"])


# --- Arithmetic

UNARY = ["abs", "neg", "exp", "sqrt", "sin", "tanh", "sigmoid", "floor", "ceil", "round", "trunc", "frac", "sign",
         "log1p", "reciprocal", "erf"]


@operation("unary", 60)
class _:
    def propose(source):
        kinds = ("float", "double", "bool") if misuse(source) else FLOATS
        td = tree(source, kinds=kinds)
        return [td], {"name": source.choice(UNARY), "lock": source.random() < 0.2}

    def run(td, arguments):
        if arguments["lock"]:
            td = td.lock_()
        return getattr(td, arguments["name"])()


BINARY = ["add", "sub", "mul", "div", "maximum", "minimum", "clamp_min", "clamp_max", "pow"]


@operation("binary", 80)
class _:
    def propose(source):
        td = tree(source, kinds=("float", "double"))
        other = like(source, td)
        if misuse(source):
            other = other.exclude(key(paths(td)[0]))
        return [td, other], {"name": source.choice(BINARY), "in_place": source.random() < 0.3}

    def run(td, other, arguments):
        return getattr(td, arguments["name"] + ("_" if arguments["in_place"] else ""))(other)


@operation("with_number", 40)
class _:
    def propose(source):
        return [tree(source, kinds=NUMBERS)], {"name": source.choice(["add", "sub", "mul", "div", "pow"]),
                                               "number": source.choice([2, 3, 0.5])}

    def run(td, arguments):
        return getattr(td, arguments["name"])(arguments["number"])


@operation("with_tensor", 30)
class _:
    def propose(source):
        td = with_dims(source, 1, kinds=FLOATS, beyond=0)
        shape = list(td.batch_size)[: source.randint(1, td.batch_dims)]
        if misuse(source):
            shape = [size + 1 for size in td.batch_size]
        return [td], {"name": source.choice(["add", "mul"]), "value": write_tensor(tensor(source, shape, "float"))}

    def run(td, arguments):
        return getattr(td, arguments["name"])(tensor_from(arguments["value"]))


@operation("ternary", 30)
class _:
    def propose(source):
        td = tree(source, kinds=FLOATS)
        return [td, like(source, td), like(source, td)], {
            "name": source.choice(["addcmul", "addcdiv", "lerp"]), "value": source.choice([1, 2])}

    def run(td, a, b, arguments):
        if arguments["name"] == "lerp":
            return td.lerp(a, 0.25)
        return getattr(td, arguments["name"])(a, b, value=arguments["value"])


@operation("compare", 40)
class _:
    def propose(source):
        td = tree(source, kinds=NUMBERS)
        other = like(source, td)
        if misuse(source):
            other["zz"] = tensor(source, list(td.batch_size), "float")
        return [td, other], {"name": source.choice(["eq", "ne", "lt", "le", "gt", "ge"])}

    def run(td, other, arguments):
        return getattr(td, f"__{arguments['name']}__")(other)


@operation("logical", 20)
class _:
    def propose(source):
        td = tree(source, kinds=("bool",))
        return [td, like(source, td)], {"name": source.choice(["and", "or", "xor"])}

    def run(td, other, arguments):
        return getattr(td, f"__{arguments['name']}__")(other)


REDUCTIONS = ["sum", "mean", "prod", "amax", "amin", "std", "var"]


@operation("reduce", 80)
class _:
    def propose(source):
        td = with_dims(source, 1, kinds=FLOATS, beyond=0.1)
        arguments = {"name": source.choice(REDUCTIONS), "over": source.choice(["all", "dim", "dim", "features"])}
        if arguments["over"] == "dim":
            arguments.update(dim=some_dim(source, td), keepdim=source.random() < 0.4)
        return [td], arguments

    def run(td, arguments):
        function = getattr(td, arguments["name"])
        if arguments["over"] == "all":
            return function()
        if arguments["over"] == "features":
            return function(dim="feature")
        return function(dim=arguments["dim"], keepdim=arguments["keepdim"])


@operation("reduce_all", 25)
class _:
    def propose(source):
        return [with_dims(source, 0, kinds=("double",))], {"name": source.choice(["sum", "mean", "amax", "amin", "prod"])}

    def run(td, arguments):
        return getattr(td, arguments["name"])(reduce=True)


@operation("all_any", 15)
class _:
    def propose(source):
        return [tree(source, kinds=("bool",))], {"name": source.choice(["all", "any"])}

    def run(td, arguments):
        return bool(getattr(td, arguments["name"])())


@operation("clone", 8)
class _:
    def propose(source):
        td = tree(source)
        return [td.lock_() if source.random() < 0.5 else td], {}

    def run(td, arguments):
        return td.clone()


@operation("like", 12)
class _:
    def propose(source):
        td = tree(source)
        return [td.lock_() if source.random() < 0.5 else td], {"name": source.choice(["zeros", "ones", "full"])}

    def run(td, arguments):
        if arguments["name"] == "full":
            return torch.full_like(td, 1)
        return getattr(torch, arguments["name"] + "_like")(td)


@operation("to", 10)
class _:
    def propose(source):
        return [tree(source)], {"kind": source.choice(["double", "float", "long"])}

    def run(td, arguments):
        return td.to({"double": torch.float64, "float": torch.float32, "long": torch.int64}[arguments["kind"]])


@operation("apply", 15)
class _:
    def propose(source):
        td = with_dims(source, 1, kinds=FLOATS)
        return [td], {"name": source.choice(["double", "sum_all"] if misuse(source) else ["double"])}

    def run(td, arguments):
        if arguments["name"] == "double":
            return td.apply(lambda leaf: leaf * 2)
        return td.apply(lambda leaf: leaf.sum())


@operation("named_apply", 10)
class _:
    def propose(source):
        return [tree(source, kinds=FLOATS)], {}

    def run(td, arguments):
        def add_length(name, leaf):
            return leaf + len(".".join(name) if isinstance(name, tuple) else name)

        return td.named_apply(add_length, nested_keys=True)
