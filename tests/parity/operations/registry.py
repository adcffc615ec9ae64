"""What the operations share: the table of them, and how trees and arguments are drawn."""

import dataclasses
from typing import Callable

import torch

from trees import tensor, tree

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
    return td.apply(lambda leaf: tensor(source, list(leaf.shape), kind_of(leaf)))


def kind_of(leaf):
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
