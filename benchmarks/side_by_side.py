"""Measures forms of Python and Graft's benchmarks in turns, and prints them side by side.

A machine is seldom quiet for long, so rounds take turns and ratios are of the least and of the median times. Both sides
run on one thread, and keep freed memory: by default malloc returns large tensors to the system and pays for fresh pages
at each call, which doubles times at random.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time

KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "1099511627776",
    "MALLOC_TOP_PAD_": "67108864",
    "MALLOC_MMAP_MAX_": "0",
}


def keep_memory():
    """Starts this script again with memory kept, unless it is."""
    if any(os.environ.get(name) != value for name, value in KEEP_MEMORY.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY, "OMP_NUM_THREADS": "1"})


def parser(description, target):
    """Returns a parser of the arguments that every comparison has."""
    result = argparse.ArgumentParser(description=description.splitlines()[0])
    result.add_argument("binary", help=f"the built {target}")
    result.add_argument("--rounds", type=int, default=7)
    result.add_argument("--seconds", type=float, default=0.1, help="for each form and round")
    return result


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
    command = [binary, f"--benchmark_filter=^({'|'.join(names)})$", f"--benchmark_min_time={seconds}"]
    output = subprocess.run([*command, "--benchmark_format=json"], check=True, capture_output=True, text=True).stdout
    scale = {"ns": 1e-3, "us": 1.0, "ms": 1e3}
    return {entry["name"]: entry["real_time"] * scale[entry["time_unit"]] for entry in json.loads(output)["benchmarks"]}


def compare(forms, arguments):
    """Measures and prints.

    forms: by subject and form, what to run in Python and the name of the benchmark to compare it with.
    """
    names = sorted({benchmark for _, benchmark in forms.values()})
    python = {key: [] for key in forms}
    graft = {name: [] for name in names}
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
        for key, (run, _) in forms.items():
            python[key].append(time_of(run, arguments.seconds))
        for name, microseconds in benchmark_times(arguments.binary, names, arguments.seconds).items():
            graft[name].append(microseconds)

    print(f"{'subject':22} {'in Python':42} {'Python us':>20} {'Graft us':>20}   times faster")
    print(f"{'':22} {'':42} {'min':>10}{'median':>10} {'min':>10}{'median':>10}   {'min':>6}{'median':>8}")
    for (subject, form), times in python.items():
        ours = graft[forms[subject, form][1]]
        least, middle = min(times), statistics.median(times)
        our_least, our_middle = min(ours), statistics.median(ours)
        print(
            f"{subject:22} {form:42} {least:10.1f}{middle:10.1f} {our_least:10.2f}{our_middle:10.2f}   "
            f"{least / our_least:6.2f}{middle / our_middle:8.2f}"
        )
