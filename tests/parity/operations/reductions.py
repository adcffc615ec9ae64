"""Sums, means and extremes."""

from trees import tree

from .registry import FLOATS, operation, some_dim, with_dims


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
