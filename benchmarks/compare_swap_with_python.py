#!/usr/bin/env python3
"""What a swap costs here and in Python, measured in one run.

    ./bazelw build //benchmarks:swap_benchmark
    ~/.cache/graft/venv/bin/python benchmarks/compare_swap_with_python.py bazel-bin/benchmarks/swap_benchmark

Python's forms are tensordict's to_module, and torch's own _reparametrize_module, which torch.func.functional_call uses.
"""

import side_by_side
import torch
from tensordict import TensorDict, TensorDictParams
from torch.nn.utils.stateless import _reparametrize_module


def with_block(make):
    def run():
        with make():
            pass

    return run


def tensordict_forms(module):
    """Forms by name, and the benchmark each is compared with."""
    params = TensorDict.from_module(module)
    other = params.data.clone().apply(lambda leaf: torch.nn.Parameter(leaf))
    plain = params.data.clone()
    plain_with_grad = params.data.clone().apply(lambda leaf: leaf.requires_grad_())
    locked = other.copy().lock_()
    as_module = TensorDictParams(params.data.clone())
    state = {name: torch.nn.Parameter(p.detach().clone()) for name, p in module.named_parameters()}
    return {
        "tensordict, Parameter leaves": (with_block(lambda: other.to_module(module)), "Grad"),
        "tensordict, locked": (with_block(lambda: locked.to_module(module)), "Grad"),
        "tensordict, TensorDictParams": (with_block(lambda: as_module.to_module(module)), "Grad"),
        "tensordict, plain leaves with grad": (with_block(lambda: plain_with_grad.to_module(module)), "Grad"),
        "tensordict, plain leaves, not preserving": (
            with_block(lambda: plain.to_module(module, preserve_module_state=False)),
            "Plain",
        ),
        "tensordict, plain leaves": (with_block(lambda: plain.to_module(module)), "Plain"),
        "tensordict, in place": (with_block(lambda: plain.to_module(module, inplace=True)), "InPlace"),
        "_reparametrize_module": (with_block(lambda: _reparametrize_module(module, state)), "Call"),
        "_reparametrize_module, tied": (
            with_block(lambda: _reparametrize_module(module, state, tie_weights=True)),
            "Call",
        ),
    }


MODULES = {
    "Linear": lambda: torch.nn.Linear(3, 4),
    "100Linears": lambda: torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(100)]),
    "Transformer": lambda: torch.nn.Transformer(),
}


def main():
    parser = side_by_side.parser(__doc__, "//benchmarks:swap_benchmark")
    parser.add_argument("--modules", nargs="+", default=list(MODULES), choices=list(MODULES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    forms = {}
    for module in arguments.modules:
        for form, (run, way) in tensordict_forms(MODULES[module]()).items():
            if module != "Linear" and way == "InPlace":
                continue  # is all copying
            forms[module, form] = (run, f"BM_Swap{module}{way}")
    side_by_side.compare(forms, arguments)


if __name__ == "__main__":
    side_by_side.keep_memory()
    main()
