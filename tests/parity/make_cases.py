"""Writes cases.jsonl: random trees and operations on them, each with what Python's tensordict gives for it.

  python make_cases.py            # writes the file anew
  python make_cases.py --check    # compares what is stored with what tensordict gives now

It needs torch 2.13.0 and tensordict 0.15.3. replay_test.cc runs every case with Graft. A line of the file is a case: the
"operation", the trees it is "on", its "arguments", and either the "result" or the name of the error that Python
"raises". "locked" says whether the result is.
"""

import argparse
import json
import os
import random
import sys
import warnings

import torch
from tensordict import TensorDictBase

from operations import OPERATIONS
from trees import write

CASES = 4000
FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases.jsonl")


def outcome(run, *arguments):
    try:
        result = run(*arguments)
    except Exception as error:  # whatever Python raises is its outcome
        return {"raises": type(error).__name__}
    outcome = {"result": write(result)}
    if isinstance(result, TensorDictBase):
        outcome["locked"] = result.is_locked
    return outcome


def make_case(source, name):
    operation = OPERATIONS[name]
    trees, arguments = operation.propose(source)
    case = {"operation": name, "on": [write(tree) for tree in trees], "arguments": arguments}
    if any(tree.is_locked for tree in trees):
        case["on_locked"] = True
    case.update(outcome(operation.run, *trees, arguments))
    return case


def make_cases():
    source = random.Random(0)
    names = sorted(OPERATIONS)
    weights = [OPERATIONS[name].weight for name in names]
    chosen = names + source.choices(names, weights, k=CASES - len(names))
    for number, name in enumerate(chosen):
        yield {"id": number, **make_case(source, name)}


def check(lines):
    with open(FILE) as file:
        stored = file.read().splitlines()
    # Trees are compared without the order of their leaves: pad_sequence takes it from a set of strings.
    differing = [number for number, (a, b) in enumerate(zip(stored, lines)) if json.loads(a) != json.loads(b)]
    if differing or len(stored) != len(lines):
        sys.exit(f"{len(differing)} of {len(stored)} stored cases differ, the first is {differing[:1]}")
    print(f"{len(stored)} cases, as stored")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the file")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    lines = [json.dumps(case, separators=(",", ":")) for case in make_cases()]
    if arguments.check:
        check(lines)
    else:
        with open(FILE, "w") as file:
            file.write("\n".join(lines) + "\n")
        raised = sum('"raises"' in line for line in lines)
        print(f"{len(lines)} cases, {raised} of them errors, {os.path.getsize(FILE)} bytes")


if __name__ == "__main__":
    main()
