"""The batch size, and other shapes of it."""

import torch

from trees import key, paths

from .registry import misuse, operation, some_dim, with_dims


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


@operation("permute", 30)
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


@operation("squeeze", 30)
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


@operation("edit", 30)
class _:
    """`with td.view(-1) as flat:`, and what it sets."""

    def propose(source):
        td = with_dims(source, 1)
        return [td], {"form": source.choice(["view", "flatten", "permute", "transpose", "squeeze", "unsqueeze",
                                             "flatten_keys"])}

    def run(td, arguments):
        name = arguments["form"]
        dims = list(range(td.batch_dims))
        form = {"view": [-1], "flatten": [0, -1], "permute": dims[::-1], "transpose": [0, -1], "squeeze": [0],
                "unsqueeze": [0], "flatten_keys": ["/"]}[name]
        with getattr(td, name)(*form) as edited:
            edited["new"] = torch.ones(edited.batch_size)
        return td
