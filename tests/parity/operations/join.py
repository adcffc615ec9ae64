"""Joining trees, and taking them apart."""

import torch
from tensordict import pad_sequence

from trees import key, paths, tensor, tree

from .registry import NUMBERS, kind_of, like, misuse, operation, some_dim, with_dims


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


@operation("pad_sequence", 10)
class _:
    def propose(source):
        td = with_dims(source, 1, 2, beyond=0, kinds=NUMBERS)
        rest = list(td.batch_size[1:])
        longer = td.apply(lambda leaf: tensor(source, [leaf.shape[0] + 1, *leaf.shape[1:]], kind_of(leaf)),
                          batch_size=[td.batch_size[0] + 1, *rest])
        return [td, longer], {"value": source.choice([0, 2])}

    def run(td, longer, arguments):
        return pad_sequence([td, longer], padding_value=arguments["value"])
