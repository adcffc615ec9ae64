#!/usr/bin/env python3
"""What a swap costs here and in Python, measured in one run.

    ./bazelw build //benchmarks:swap_benchmark
    ~/.cache/graft/venv/bin/python benchmarks/compare_swap_with_python.py bazel-bin/benchmarks/swap_benchmark

Rounds of Python and of the benchmark take turns on one thread. For each form the table has the least and the median time
over the rounds, and how many times faster Graft is: by the least times and by the medians. Python's forms are
tensordict's to_module, and torch's own _reparametrize_module, which torch.func.functional_call uses.
"""

import argparse
import gc
import json
import statistics
import subprocess
import time

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


def time_of(run, seconds):
    """Returns microseconds a call."""
    run()
    count, elapsed = 1, 0.0
    gc.disable()
    while elapsed < seconds:
        start = time.perf_counter()
        for _ in range(count):
            run()
        elapsed = time.perf_counter() - start
        best, count = elapsed / count, count * 2
    gc.enable()
    return best * 1e6


def benchmark_times(binary, names, seconds):
    """Returns microseconds by benchmark."""
    command = [binary, f"--benchmark_filter=^({'|'.join(names)})$", f"--benchmark_min_time={seconds}", "--benchmark_format=json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {entry["name"]: entry["real_time"] / 1e3 for entry in json.loads(output)["benchmarks"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", help="the built //benchmarks:swap_benchmark")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.1, help="for each form and round")
    parser.add_argument("--modules", nargs="+", default=list(MODULES), choices=list(MODULES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    forms = {}
    for module in arguments.modules:
        for form, (run, way) in tensordict_forms(MODULES[module]()).items():
            if module != "Linear" and way == "InPlace":
                continue  # is all copying
            forms[module, form] = (run, f"BM_Swap{module}{way}")
    names = sorted({benchmark for _, benchmark in forms.values()})
    python = {key: [] for key in forms}
    graft = {name: [] for name in names}
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}", flush=True)
        for key, (run, _) in forms.items():
            python[key].append(time_of(run, arguments.seconds))
        for name, microseconds in benchmark_times(arguments.binary, names, arguments.seconds).items():
            graft[name].append(microseconds)

    print(f"\n{'module':12} {'in Python':42} {'Python us':>20} {'Graft us':>18}   times faster")
    print(f"{'':12} {'':42} {'min':>10}{'median':>10} {'min':>9}{'median':>9}   {'min':>6}{'median':>8}")
    for (module, form), times in python.items():
        ours = graft[forms[module, form][1]]
        least, middle = min(times), statistics.median(times)
        our_least, our_middle = min(ours), statistics.median(ours)
        print(
            f"{module:12} {form:42} {least:10.1f}{middle:10.1f} {our_least:9.2f}{our_middle:9.2f}   "
            f"{least / our_least:6.1f}{middle / our_middle:8.1f}"
        )


if __name__ == "__main__":
    main()
