"""Writes programs.jsonl: random programs of transforms, each with what torch.func gives for it.

  python make_programs.py            # writes the file anew
  python make_programs.py --check    # compares what is stored with what torch.func gives now

It needs torch 2.13.0, and nothing else. replay_test.cc runs every program with Graft. A line of the file is a program
(see evaluate.py) and either its "results" or what torch.func "raises", then with "plain", the results of plain loops
and ordinary autograd, if these have some. Results of torch.func that differ from the plain ones are stored as if it
raised.
"""

import argparse
import json
import os
import random
import sys
import warnings

import torch

from evaluate import TRANSFORMS, Plain, Reject, TorchFunc, as_list
from operators import OPERATORS

PROGRAMS = 1200
WRONG = "(other numbers than loops)"
MISUSE = 0.12  # so many programs are made wrong
FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs.jsonl")

# By the number of arguments; replay_test.cc knows the same.
ARGNUMS = {1: [0, -1], 2: [0, 1, -1, [0, 1], [-1, 0]], 3: [0, -1, [0, 2], [-1, 1]]}
WEIGHTS = {"vmap": 10, "grad": 5, "value_and_grad": 2, "vjp": 3, "jvp": 3, "linearize": 1, "jacrev": 2, "jacfwd": 2,
           "hessian": 1, "no_grad": 1}
CHANCE_OPERATORS = [name for name, operator in OPERATORS.items() if operator.propose is not None]


class Draft:
    """A function in the making, with the values it has for one sample."""

    def __init__(self, source, values, arguments):
        self.random = source
        self.values = values + arguments
        self.own = len(values)  # the first value that is not from outside
        self.live = list(range(self.own, len(self.values)))  # what depends on the arguments; constants, without these
        self.body = []

    # What proposals use.

    def chance(self, probability):
        return self.random.random() < probability

    def number(self, low, high):
        return self.random.randint(low, high)

    def shape(self, x):
        return tuple(self.values[x].shape)

    def dim(self, x):
        rank = len(self.shape(x))
        return self.number(0, rank - 1) - (rank if self.chance(0.3) else 0)

    def nested(self, shape, low, high):
        if not shape:
            return self.number(low, high)
        return [self.nested(shape[1:], low, high) for _ in range(shape[0])]

    def add(self, name, operands, *attributes):
        """Appends a statement; returns the numbers of its values."""
        made = Plain().statement(name, [self.values[i] for i in operands], attributes, self.values)
        if name in TRANSFORMS:
            attributes[0]["makes"] = len(made)
        self.body.append([name, list(operands), *attributes])
        numbers = list(range(len(self.values), len(self.values) + len(made)))
        self.values += made
        if not self.live or name in TRANSFORMS or any(i in self.live for i in operands):
            self.live += numbers
        return numbers

    def fresh(self, name, operands, *attributes):
        return self.add(name, operands, *attributes)[0]

    def fill(self, shape):
        return self.fresh("fill", [], list(shape), self.number(1, 999))

    def value(self, shape):
        """A value of that shape: one that is there, or a new constant."""
        there = [i for i in range(len(self.values)) if self.shape(i) == tuple(shape)]
        return self.random.choice(there) if there and self.chance(0.7) else self.fill(shape)

    # Statements.

    def operand(self):
        """Some value, mostly a late one of the live ones."""
        if not self.values or self.chance(0.03):
            return self.fill([self.number(2, 3) for _ in range(self.number(1, 3))])
        if self.live and self.chance(0.93):
            return self.live[-1 - min(int(self.random.expovariate(0.6)), len(self.live) - 1)]
        return self.number(0, len(self.values) - 1)

    def attempt(self, make):
        """Calls `make`; undoes what it added if it gives nothing or fails."""
        statements, values, live = len(self.body), len(self.values), len(self.live)
        try:
            result = make()
        except (Reject, RuntimeError, IndexError, ValueError):
            result = None
        if result is None:
            del self.body[statements:], self.values[values:], self.live[live:]
        return result

    def random_statement(self):
        def make():
            name = self.random.choice(CHANCE_OPERATORS)
            proposal = OPERATORS[name].propose(self, self.operand())
            if proposal is None:
                return None
            operands, *attributes = proposal if isinstance(proposal, tuple) else (proposal,)
            (made,) = self.add(name, operands, *attributes)
            return made if self.values[made].numel() <= 150 else None

        while self.attempt(make) is None:
            pass

    def transform(self, depth):
        """Appends the call of a transformed function that holds `depth - 1` more."""
        kind = self.random.choices(list(WEIGHTS), WEIGHTS.values())[0]
        made = (self.vmap if kind == "vmap" else self.no_grad if kind == "no_grad" else self.derivative)(kind, depth)
        if sum(self.values[i].numel() for i in made) > 150:
            raise Reject("too large")
        return made

    def no_grad(self, kind, depth):
        return self.add(kind, [], {}, make_function(self, [], depth - 1))

    def vmap(self, kind, depth):
        size = 0 if self.chance(0.04) else None
        operands, dims = [], []
        for _ in range(self.random.choice([1, 1, 2, 2, 2, 3])):
            if operands and self.chance(0.25):
                operands.append(self.operand())
                dims.append(None)
                continue
            fitting = [
                (i, d)
                for i in (self.live if self.chance(0.8) else range(len(self.values)))
                for d, n in enumerate(self.shape(i))
                if (n == size if size is not None else n > 0)
            ]
            if fitting and self.chance(0.8):
                x, dim = self.random.choice(fitting)
            else:
                shape = [self.number(1, 3) for _ in range(min(depth + self.number(-1, 1), 3))]
                dim = self.number(0, len(shape))
                shape.insert(dim, self.number(1, 3) if size is None else size)
                x = self.fill(shape)
            size = self.shape(x)[dim]
            operands.append(x)
            dims.append(dim - len(self.shape(x)) if self.chance(0.3) else dim)
        arguments = [self.sample(self.values[x], d) for x, d in zip(operands, dims)]
        constant = self.chance(0.08)
        function = make_function(self, arguments, depth - 1, constant=constant)
        options = {"in_dims": dims, "out_dims": self.out_dims(function, arguments, constant)}
        if len(operands) > 1 and self.chance(0.15):
            group = options["group"] = self.number(1, len(operands) - 1)
            options["in_dims"] = [self.shortened(dims[:group]), self.shortened(dims[group:])]
        elif self.chance(0.6):
            options["in_dims"] = self.shortened(dims)
        if self.chance(0.2):
            options["chunk_size"] = self.number(1, size + 1)
        if self.chance(0.2):
            options["randomness"] = "same"
        return self.add(kind, operands, options, function)

    @staticmethod
    def sample(x, dim):
        if dim is None:
            return x
        return x.select(dim, 0) if x.shape[dim] > 0 else OPERATORS["fill"].run([], list(x.movedim(dim, 0).shape[1:]), 9)

    @staticmethod
    def shortened(dims):
        """One number for all where it says the same."""
        return dims[0] if set(dims) == {dims[0]} and dims[0] is not None else dims

    def out_dims(self, function, arguments, constant):
        ranks = [x.dim() for x in Plain().run(function, self.values + arguments)[0]]
        dims = [self.number(-rank - 1, rank) for rank in ranks]
        if constant:
            dims[-1] = None
        elif self.chance(0.4):
            return 0
        return dims[0] if len(dims) == 1 and self.chance(0.5) else dims

    def derivative(self, kind, depth):
        count = self.random.choice([1, 1, 2, 2, 3])
        operands = []
        for _ in range(count):
            known = self.live if self.chance(0.8) else range(len(self.values))
            small = [i for i in known if self.values[i].numel() <= 30]
            if small and self.chance(0.75):
                operands.append(self.random.choice(small))
            else:
                operands.append(self.fill([self.number(1, 3) for _ in range(self.number(0, depth + 1))]))
        options = {}
        arity = count
        if count > 1 and kind != "hessian" and self.chance(0.15):
            options["group"], arity = self.number(1, count - 1), 2
        if kind not in ("vjp", "jvp", "linearize") or self.chance(0.5):
            options["argnums"] = self.random.choice(ARGNUMS[arity])
        if kind in ("vjp", "jvp", "linearize"):
            options["companion"] = self.random.choice(["fill", "sine"])
        if kind in ("jacrev", "jacfwd") and self.chance(0.2):
            options["chunk_size"] = self.number(1, 4)
        function = make_function(
            self,
            [self.values[x] for x in operands],
            depth - 1,
            scalar=kind in ("grad", "value_and_grad"),
            aux=kind not in ("linearize", "hessian") and self.chance(0.2),
        )
        return self.add(kind, operands, options, function)

    def outputs(self):
        """The last live value, and sometimes another of the function's own."""
        live = self.live or [len(self.values) - 1]
        other = live if self.chance(0.9) else range(self.own, len(self.values))
        return live[-1:] + ([self.random.choice(other)] if self.chance(0.25) else [])


def make_function(outer, arguments, depth, scalar=False, aux=False, constant=False):
    """
    scalar: the result is one number.
    aux: there are auxiliary results.
    constant: the last result does not depend on the arguments.
    """
    draft = Draft(outer.random, outer.values, arguments)
    fill_body(draft, depth)
    if scalar and draft.values[draft.live[-1]].dim() > 0:
        draft.random_statement()
        draft.add(draft.random.choice(["sum_all", "sum_all", "mean_all"]), [draft.live[-1]])
    out = draft.outputs()
    if constant:
        out.append(draft.fill([2]))
    function = {"body": draft.body, "out": out[:1] if scalar else out}
    if aux:
        function["aux"] = [draft.number(draft.own, len(draft.values) - 1)]
    return function


def fill_body(draft, depth):
    """Operators, and if there is to be a transform, it among them. Returns the values that it makes."""
    if depth == 0:
        for _ in range(draft.number(2, 6)):
            draft.random_statement()
        return []
    around = 0 if draft.chance(0.4) else 2
    for _ in range(draft.number(0, around)):
        draft.random_statement()
    made = draft.transform(depth)
    for _ in range(draft.number(0, around)):
        draft.random_statement()
    return made


# --- Misuse: changes that make a program wrong. Each returns False if the program has no place for it.


def calls(function):
    for statement in function["body"]:
        if statement[0] in TRANSFORMS:
            yield statement
            yield from calls(statement[3])


def a_call(source, program, kinds):
    found = [c for c in calls(program) if c[0] in kinds]
    return source.choice(found) if found else None


def change_option(name, make, kinds=("vmap",)):
    def change(source, program):
        call = a_call(source, program, kinds)
        if call is None:
            return False
        call[2][name] = make(source, call)
        return True

    return change


def with_entry(name, entries):
    """Replaces one of the dims of an option."""

    def make(source, call):
        dims = call[2][name]
        if not isinstance(dims, list):
            return source.choice(entries)
        dims = list(dims)
        dims[source.randrange(len(dims))] = source.choice(entries)
        return dims

    return make


def with_statement(name, kinds=TRANSFORMS):
    """Lets a function end with a statement whose value nobody uses."""

    def change(source, program):
        call = a_call(source, program, kinds)
        if call is None:
            return False
        call[3]["body"].append([name, call[3]["out"][:1]])
        return True

    return change


def write_to_captured(source, program):
    """A value from outside the function is written in place, with an argument."""
    call = a_call(source, program, ("vmap",))
    if call is None or not call[1]:
        return False
    call[3]["body"].append(["add_", [call[1][0], call[3]["out"][0]]])
    return True


def integer_argument(source, program):
    for function in [program] + [c[3] for c in calls(program)]:
        for statement in function["body"]:
            if statement[0] == "fill" and statement[1] == []:
                statement[0] = "integers"
                return True
    return False


def not_scalar(source, program):
    call = a_call(source, program, ("grad", "value_and_grad"))
    if call is None or not call[3]["body"] or call[3]["body"][-1][0] not in ("sum_all", "mean_all"):
        return False
    call[3]["body"][-1][0] = "neg"
    return True


DIFFERENTIATED = tuple(k for k in TRANSFORMS if k not in ("vmap", "no_grad"))
MISUSES = [
    change_option("in_dims", with_entry("in_dims", [7, -7])),
    change_option("in_dims", with_entry("in_dims", [0, 1, -1])),
    change_option("in_dims", lambda source, call: [0] * (len(call[1]) + source.choice([-1, 1]))),
    change_option("in_dims", lambda source, call: [None] * len(call[1])),
    change_option("in_dims", lambda source, call: None),
    change_option("in_dims", lambda source, call: [[0, 0]] + [0] * (len(call[1]) - 1)),
    change_option("out_dims", with_entry("out_dims", [9, -9])),
    change_option("out_dims", with_entry("out_dims", [None])),
    change_option("out_dims", lambda source, call: [0] * (len(call[3]["out"]) + 1)),
    change_option("chunk_size", lambda source, call: source.choice([0, -1])),
    change_option("chunk_size", lambda source, call: source.choice([0, -1]), ("jacrev",)),
    change_option("companion", lambda source, call: "misfit", ("vjp", "jvp")),
    with_statement("item", ("vmap",)),
    with_statement("nonzero", ("vmap",)),
    with_statement("mask", ("vmap",)),
    with_statement("random", ("vmap",)),
    write_to_captured,
    integer_argument,
    not_scalar,
]


# --- The file


def stored(tensors):
    # torch.func hands out tensors of zeros that have no memory.
    tensors = [torch.zeros_like(x) if x._is_zerotensor() else x for x in tensors]
    return [[list(x.shape), [float(f"{v:.13g}") for v in x.detach().flatten().tolist()]] for x in tensors]


def is_close(left, right):
    """Of two stored results."""
    if [shape for shape, _ in left] != [shape for shape, _ in right]:
        return False
    pairs = [pair for (_, a), (_, b) in zip(left, right) for pair in zip(a, b)]
    return all(abs(x - y) <= 1e-10 * (1 + abs(y)) for x, y in pairs)


NORMS = ("layer_norm", "group_norm", "batch_norm")


def known_to_be_wrong(program):
    """Why torch.func's result may be wrong."""
    for kind, _, options, _ in calls(program):
        if kind in ("jacfwd", "hessian") and any(n < 0 for n in as_list(options["argnums"])):
            return "jacfwd with a negative argnum"
    if any(kind == "linearize" for kind, *_ in calls(program)):
        return "linearize"
    return "a norm" if any(f'"{norm}"' in json.dumps(program) for norm in NORMS) else ""


def outcome(program):
    """What torch.func does: {"results": ...} or {"raises": ...}."""
    torch.manual_seed(0)
    try:
        return {"results": stored(TorchFunc().run(program)[0])}
    except Exception as error:  # of any type: it is what is recorded
        words = str(error).strip().split("\n")[0]
        return {"raises": f"{type(error).__name__}: {words}"[:110]}


def plain_outcome(program):
    """The same by loops, None if they give nothing that could be compared."""
    try:
        results = Plain().run(program)[0]
    except Exception:
        return None
    # Forward mode goes on inside no_grad, the loops' derivative of a gradient does not.
    kinds = {c[0] for c in calls(program)}
    stopped = "no_grad" in kinds and kinds & {"jvp", "linearize", "jacfwd", "hessian"}
    return None if stopped or any(x.dtype != torch.float64 for x in results) else stored(results)


def says_little(results):
    """Whether most results are of zeros alone."""
    return 2 * sum(any(values) for _, values in results) <= len(results)


def multiplies_by_itself(function):
    """LibTorch never frees the graph of x.mul_(x)."""
    statements = function["body"]
    inner = [statement[3] for statement in statements if statement[0] in TRANSFORMS]
    here = any(statement[0] == "mul_" and statement[1][0] == statement[1][1] for statement in statements)
    return here or any(multiplies_by_itself(function) for function in inner)


def make_program(source):
    """Returns a program and what is stored of it; None if it is no good test."""
    draft = Draft(source, [], [])
    made = fill_body(draft, source.choices([1, 2, 3], [35, 40, 25])[0])
    last = len(draft.values) - 1
    program = {"body": draft.body, "out": made + ([last] if last not in made else [])}
    misused = source.random() < MISUSE
    if misused:
        while not source.choice(MISUSES)(source, program):
            pass
    if multiplies_by_itself(program):
        return None
    python, plain = outcome(program), plain_outcome(program)
    if "results" in python:
        if (misused and plain is None) or sum(len(values) for _, values in python["results"]) > 150:
            return None
        if says_little(python["results"]) and source.random() < 0.85:
            return None
        reason = known_to_be_wrong(program)
        if plain is None and reason:
            return None
        if plain is not None and not is_close(python["results"], plain):
            python = {"raises": f"{WRONG} {reason}"}
    if python.get("raises", "").startswith("Undefined") and source.random() < 0.8:
        return None
    if "raises" in python and plain is not None:
        python["plain"] = plain
    elif "raises" in python and not misused:
        return None
    return {"function": program, **python}


def write(numbers, path):
    """Writes a program for each of the numbers, which are its seeds."""
    lines, raising = [], 0
    for number in numbers:
        program = None
        for attempt in range(1000):
            try:
                program = make_program(random.Random(f"{number}/{attempt}"))
            except (Reject, RuntimeError, IndexError, ValueError):
                continue
            if program is not None:
                break
        lines.append(json.dumps({"id": number, **program}, separators=(",", ":")))
        raising += "raises" in program
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")
    print(f"{len(lines)} programs, {raising} that raise, {os.path.getsize(path)} bytes")


def check():
    differing = []
    for line in open(FILE):
        program = json.loads(line)
        now = outcome(program["function"])
        if "results" in program:
            same = "results" in now and is_close(now["results"], program["results"])
        elif program["raises"].startswith(WRONG):
            same = "results" in now and not is_close(now["results"], program["plain"])
        else:
            same = now.get("raises") == program["raises"]
        if not same:
            differing.append(program["id"])
            print(program["id"], "was", program.get("raises", "a result"), "and is", now.get("raises", "a result"))
    print(f"{len(differing)} programs differ")
    return 1 if differing else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    sys.exit(check() if parser.parse_args().check else write(range(PROGRAMS), FILE))
