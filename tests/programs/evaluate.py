"""Two ways to run a program: by torch.func, and by plain loops and ordinary autograd.

A program is a function {"body": [statement...], "out": [value...], "aux": [value...]}. A function sees all values of
the place where it is called, then its arguments, then the results of its statements, all numbered in this order. A
statement is [operator, operands, attributes...] and makes one value, or [transform, operands, options, function] and
makes one for each tensor of what the transformed function returns.
"""

import itertools

import torch
from torch.utils._pytree import tree_leaves, tree_map

from operators import OPERATORS, fill

TRANSFORMS = ("vmap", "grad", "value_and_grad", "vjp", "jvp", "linearize", "jacrev", "jacfwd", "hessian", "no_grad")


class Reject(Exception):
    """The program is no good test: a value is not finite, or near a place without a derivative."""


class Undefined(Exception):
    """What torch.func does with the program is not defined, and may end the process."""


def is_mapped(x):
    """By the innermost vmap."""
    level = torch._C._functorch.peek_interpreter_stack().level()
    return torch._C._functorch.is_batchedtensor(x) and torch._C._functorch.maybe_get_level(x) == level


def companion(rule, x, number):
    """A tangent or cotangent that goes with `x`."""
    if rule == "sine":
        return x.sin()
    return fill(list(x.shape) + [2] if rule == "misfit" else x.shape, 70 + number)


def companions(rule, tree):
    number = itertools.count()
    return tree_map(lambda x: companion(rule, x, next(number)), tree)


def as_dims(dims):
    """Lists are tuples in torch.func's options."""
    return tuple(as_dims(d) for d in dims) if isinstance(dims, list) else dims


def as_list(argnums):
    return argnums if isinstance(argnums, list) else [argnums]


def positions(argnums, count, default):
    if argnums is None:
        return default
    return [n + count if n < 0 else n for n in as_list(argnums)]


class Evaluator:
    def run(self, function, values=()):
        """Returns the results and the auxiliary results of a function."""
        values = list(values)
        for name, inputs, *attributes in function["body"]:
            values += self.statement(name, [values[i] for i in inputs], attributes, values)
        return [values[i] for i in function["out"]], [values[i] for i in function.get("aux", [])]

    def statement(self, name, operands, attributes, values):
        if name not in TRANSFORMS:
            return [self.operate(name, operands, attributes)]
        options, function = attributes

        def body(*arguments):
            return self.run(function, values + tree_leaves(arguments))

        if name == "no_grad":
            with torch.no_grad():
                return body(*operands)[0]
        group = options.get("group")
        arguments = operands if group is None else [tuple(operands[:group]), tuple(operands[group:])]
        return tree_leaves(getattr(self, name)(body, arguments, options, "aux" in function))

    def operate(self, name, operands, attributes):
        return OPERATORS[name].run(operands, *attributes)


class TorchFunc(Evaluator):
    """By torch.func."""

    @staticmethod
    def with_aux(body, has_aux):
        def f(*arguments):
            out, aux = body(*arguments)
            return (tuple(out), tuple(aux)) if has_aux else tuple(out)

        return f

    @staticmethod
    def loss(body, has_aux):
        def f(*arguments):
            out, aux = body(*arguments)
            return (out[0], tuple(aux)) if has_aux else out[0]

        return f

    @staticmethod
    def argnums(options):
        return as_dims(options.get("argnums", 0))

    def vmap(self, body, arguments, options, _):
        out_dims = options["out_dims"]

        def f(*given):
            results = body(*given)[0]
            dims = out_dims if isinstance(out_dims, list) else [out_dims] * len(results)
            if any(d and not is_mapped(x) for x, d in zip(results, dims)):
                raise Undefined("torch.func reads out of bounds for an unmapped result whose out_dim is not 0")
            return tuple(results)

        return torch.func.vmap(
            f,
            in_dims=as_dims(options["in_dims"]),
            out_dims=as_dims(out_dims),
            randomness=options.get("randomness", "error"),
            chunk_size=options.get("chunk_size"),
        )(*arguments)

    def grad(self, body, arguments, options, has_aux):
        f = torch.func.grad(self.loss(body, has_aux), self.argnums(options), has_aux=has_aux)
        return f(*arguments)

    def value_and_grad(self, body, arguments, options, has_aux):
        f = torch.func.grad_and_value(self.loss(body, has_aux), self.argnums(options), has_aux=has_aux)
        return f(*arguments)[::-1]

    @staticmethod
    def of_chosen(body, arguments, options, has_aux):
        """The function of the differentiated arguments alone (torch.func.vjp and jvp have no argnums), and these."""
        chosen = positions(options.get("argnums"), len(arguments), range(len(arguments)))

        def f(*given):
            full = list(arguments)
            for position, value in zip(chosen, given):
                full[position] = value
            return TorchFunc.with_aux(body, has_aux)(*full)

        return f, tuple(arguments[p] for p in chosen)

    def vjp(self, body, arguments, options, has_aux):
        f, primals = self.of_chosen(body, arguments, options, has_aux)
        out, pullback, *aux = torch.func.vjp(f, *primals, has_aux=has_aux)
        return out, pullback(companions(options["companion"], out)), aux

    def jvp(self, body, arguments, options, has_aux):
        f, primals = self.of_chosen(body, arguments, options, has_aux)
        return torch.func.jvp(f, primals, companions(options["companion"], primals), has_aux=has_aux)

    def linearize(self, body, arguments, options, _):
        f, primals = self.of_chosen(body, arguments, options, False)
        try:
            out, pushforward = torch.func.linearize(f, *primals)
            return out, pushforward(*companions(options["companion"], primals))
        except Exception as error:
            raise RuntimeError(f"linearize: {error}") from error

    def jacrev(self, body, arguments, options, has_aux):
        f, chunk_size = self.with_aux(body, has_aux), options.get("chunk_size")
        return torch.func.jacrev(f, self.argnums(options), has_aux=has_aux, chunk_size=chunk_size)(*arguments)

    def jacfwd(self, body, arguments, options, has_aux):
        return torch.func.jacfwd(self.with_aux(body, has_aux), self.argnums(options), has_aux=has_aux)(*arguments)

    def hessian(self, body, arguments, options, _):
        return torch.func.hessian(self.with_aux(body, False), self.argnums(options))(*arguments)


class Plain(Evaluator):
    """One sample after the other, with torch.autograd.grad. It also finds what makes a program no good test."""

    def operate(self, name, operands, attributes):
        margin = OPERATORS[name].margin
        with torch.no_grad():
            if margin is not None and (margin(operands, *attributes) < 1e-3).any():
                raise Reject(f"{name} near a kink")
        formula = OPERATORS[name].plain
        result = (formula or OPERATORS[name].run)(operands, *attributes)
        if not bool((result.abs() < 1e4).all()):
            raise Reject(f"{name} gives large numbers")
        return result

    def vmap(self, body, arguments, options, _):
        dims = self.dims_of_leaves(as_dims(options["in_dims"]), arguments)
        leaves = tree_leaves(arguments)
        (size,) = {x.shape[d] for x, d in zip(leaves, dims) if d is not None}

        def sample(i):
            taken = iter([x if d is None else x.select(d, i) for x, d in zip(leaves, dims)])
            return body(*tree_map(lambda _: next(taken), tuple(arguments)))[0]

        if size == 0:
            # Shapes alone are left: those of the results for a sample of numbers.
            leaves = [x if d is None else companion("fill", x.movedim(d, 0).sum(0), 0).unsqueeze(d)
                      for x, d in zip(leaves, dims)]
            results = [r[None][:0] for r in sample(0)]
        else:
            results = [torch.stack(r) for r in zip(*map(sample, range(size)))]
        out_dims = options["out_dims"]
        out_dims = out_dims if isinstance(out_dims, list) else [out_dims] * len(results)
        if len(out_dims) != len(results):
            raise ValueError("out_dims")
        return [r[0] if d is None else r.movedim(0, d) for r, d in zip(results, out_dims)]

    def dims_of_leaves(self, dims, tree):
        if not isinstance(dims, tuple):
            return [dims] * len(tree_leaves(tree))
        if not isinstance(tree, (tuple, list)) or len(dims) != len(tree):
            raise ValueError("in_dims")
        return sum((self.dims_of_leaves(d, t) for d, t in zip(dims, tree)), [])

    def differentiated(self, body, arguments, chosen):
        """Runs the function; returns its results, and leaves of the chosen arguments that these are functions of."""

        def leaf(x):
            return x.clone() if x.requires_grad else x.clone().requires_grad_()

        given = [tree_map(leaf, a) if i in chosen else a for i, a in enumerate(arguments)]
        out, aux = body(*given)
        return out, aux, [x for p in chosen for x in tree_leaves(given[p])]

    @staticmethod
    def derivatives(outputs, inputs, cotangents):
        kept = [(y, c) for y, c in zip(outputs, cotangents) if y.requires_grad]
        if not kept:
            return [torch.zeros_like(x) for x in inputs]
        gradients = torch.autograd.grad(
            [y for y, _ in kept], inputs, [c for _, c in kept], create_graph=True, allow_unused=True
        )
        return [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, inputs)]

    def tracked(self, compute):
        """A no_grad around a transform stops what would be recorded outside of it, not the transform."""
        recording = torch.is_grad_enabled()
        with torch.enable_grad():
            results = compute()
        return results if recording else tree_map(torch.Tensor.detach, results)

    def value_and_grad(self, body, arguments, options, _):
        def compute():
            chosen = positions(options.get("argnums"), len(arguments), [0])
            out, aux, inputs = self.differentiated(body, arguments, chosen)
            if len(out) != 1 or out[0].dim() != 0:
                raise ValueError("not a scalar")
            return out, aux, self.derivatives(out, inputs, [torch.ones_like(out[0])])

        return self.tracked(compute)

    def grad(self, body, arguments, options, has_aux):
        _, aux, gradients = self.value_and_grad(body, arguments, options, has_aux)
        return gradients, aux

    def vjp(self, body, arguments, options, _):
        def compute():
            chosen = positions(options.get("argnums"), len(arguments), range(len(arguments)))
            out, aux, inputs = self.differentiated(body, arguments, chosen)
            return out, self.derivatives(out, inputs, companions(options["companion"], out)), aux

        return self.tracked(compute)

    def jvp(self, body, arguments, options, _):
        """The derivative of the gradient by the cotangent."""

        def compute():
            chosen = positions(options.get("argnums"), len(arguments), range(len(arguments)))
            out, aux, inputs = self.differentiated(body, arguments, chosen)
            tangents = companions(options["companion"], [x for p in chosen for x in tree_leaves(arguments[p])])
            cotangents = [torch.zeros_like(y).requires_grad_() for y in out]
            gradients = self.derivatives(out, inputs, cotangents)
            return out, self.derivatives(gradients, cotangents, tangents), aux

        return self.tracked(compute)

    linearize = jvp

    def jacrev(self, body, arguments, options, _):
        def compute():
            chosen = positions(options.get("argnums"), len(arguments), [0])
            out, aux, inputs = self.differentiated(body, arguments, chosen)
            jacobians = []
            for y in out:
                rows = [self.derivatives([element], inputs, [torch.ones(())]) for element in y.flatten().unbind()]
                for i, x in enumerate(inputs):
                    blocks = [row[i] for row in rows]
                    jacobian = torch.stack(blocks) if blocks else x.new_empty([0, *x.shape])
                    jacobians.append(jacobian.reshape([*y.shape, *x.shape]))
            return jacobians, aux

        return self.tracked(compute)

    jacfwd = jacrev

    def hessian(self, body, arguments, options, _):
        return self.jacrev(lambda *a: (tree_leaves(self.jacrev(body, a, options, False)), []), arguments, options, _)
