"""What is done to each leaf: copies, new values, other dtypes, functions."""

import torch

from trees import tensor, tree

from .registry import FLOATS, like, misuse, operation, with_dims


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


@operation("apply_", 30)
class _:
    def propose(source):
        td = tree(source, kinds=FLOATS)
        return [td.lock_() if source.random() < 0.5 else td], {"name": "wide" if misuse(source) else "affine"}

    def run(td, arguments):
        return td.apply_(lambda leaf: leaf.expand([5, *leaf.shape]) if arguments["name"] == "wide" else leaf * 2 + 1)


@operation("apply_two", 10)
class _:
    def propose(source):
        td = tree(source, kinds=FLOATS)
        other = like(source, td)
        if misuse(source):
            other["zz"] = tensor(source, list(td.batch_size), "float")
        return [td, like(source, td), other], {}

    def run(td, a, b, arguments):
        return td.apply(lambda x, y, z: x + y * z, a, b)
