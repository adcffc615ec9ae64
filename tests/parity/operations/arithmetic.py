"""Functions of one tree, of two and of three."""

import torch

from trees import key, paths, tensor, tree, write_tensor

from .registry import FLOATS, NUMBERS, like, misuse, operation, tensor_from, with_dims


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


def by_symbol(td, other, arguments):
    return getattr(td, f"__{arguments['name']}__")(other)


@operation("compare", 40)
class _:
    def propose(source):
        td = tree(source, kinds=NUMBERS)
        other = like(source, td)
        if misuse(source):
            other["zz"] = tensor(source, list(td.batch_size), "float")
        return [td, other], {"name": source.choice(["eq", "ne", "lt", "le", "gt", "ge"])}

    run = by_symbol


@operation("logical", 20)
class _:
    def propose(source):
        td = tree(source, kinds=("bool",))
        return [td, like(source, td)], {"name": source.choice(["and", "or", "xor"])}

    run = by_symbol


@operation("bitwise", 20)
class _:
    def propose(source):
        td = tree(source, kinds=("long", "bool", "float") if misuse(source) else ("long", "bool"))
        return [td, like(source, td)], {"name": source.choice(["and", "or", "xor"])}

    run = by_symbol


@operation("scaled", 20)
class _:
    def propose(source):
        td = tree(source, kinds=NUMBERS)
        return [td, like(source, td)], {"name": source.choice(["add", "sub"]),
                                        "alpha": 0.5 if misuse(source) else source.choice([2, 3])}

    def run(td, other, arguments):
        return getattr(td, arguments["name"])(other, alpha=arguments["alpha"])


@operation("default", 40)
class _:
    def propose(source):
        td = tree(source, kinds=FLOATS)
        other = like(source, td)
        if len(paths(other)) > 1:
            other = other.exclude(key(source.choice(paths(other))))
        for name in source.sample(["x", "y"], source.randint(0, 2)):
            other[name] = tensor(source, list(td.batch_size) + [2], "float")
        return [td, other], {"name": source.choice(["add", "sub", "mul"]),
                             "default": source.choice(["intersection", 0, 2])}

    def run(td, other, arguments):
        default = arguments["default"]
        return getattr(td, arguments["name"])(
            other, default=default if default == "intersection" else torch.tensor(float(default)))


@operation("loss", 30)
class _:
    def propose(source):
        td = tree(source, kinds=FLOATS)
        other = like(source, td)
        if misuse(source):
            other = other.exclude(key(paths(td)[0]))
        return [td, other], {"name": source.choice(["mse_loss", "l1_loss", "smooth_l1_loss"]),
                             "reduction": source.choice(["none", "mean", "sum"])}

    def run(td, target, arguments):
        return getattr(torch.nn.functional, arguments["name"])(td, target, reduction=arguments["reduction"])
