"""Keys and values: reading, setting, choosing and renaming leaves."""

from tensordict import TensorDict

from trees import key, parts, paths, tensor, tree, write_tensor

from .registry import like, misuse, operation, tensor_from


@operation("get", 20)
class _:
    def propose(source):
        td = tree(source)
        path = source.choice(paths(td))
        if misuse(source):
            path = source.choice([path + ".x", "zz", "a.zz", path[:-1] or "y"])
        return [td], {"path": path}

    def run(td, arguments):
        return td[key(arguments["path"])]


@operation("subtree", 15)
class _:
    def propose(source):
        td = tree(source, depth=source.randint(1, 4))
        names = [path for path, _ in parts(td)]
        return [td], {"path": "zz" if misuse(source) or not names else source.choice(names)}

    def run(td, arguments):
        return td[key(arguments["path"])]


@operation("set", 25)
class _:
    def propose(source):
        td = tree(source)
        old = source.choice(paths(td))
        path = source.choice([old, "new", "new.part.leaf", old.rpartition(".")[0] + ".new" if "." in old else "n"])
        sizes = list(td.batch_size)
        around = path.rpartition(".")[0]
        for name, part in parts(td):
            if around == name or around.startswith(name + "."):
                sizes = list(part.batch_size)
        sizes = sizes + [source.randint(1, 3) for _ in range(source.randint(0, 2))]
        if misuse(source):
            sizes = [size + 1 for size in sizes] or [2]
            path = source.choice([path, old + ".x"])
        if source.random() < 0.1:
            td.lock_()
        return [td], {"path": path, "value": write_tensor(tensor(source, sizes, "float"))}

    def run(td, arguments):
        return td.clone(recurse=False).lock_().set(*_set(td, arguments)) if td.is_locked else td.set(
            *_set(td, arguments))


def _set(td, arguments):
    return key(arguments["path"]), tensor_from(arguments["value"])


@operation("set_tree", 15)
class _:
    def propose(source):
        td = tree(source)
        names = [path for path, _ in parts(td)]
        path = source.choice(names + ["new", "new.part"])
        batch = list(td.batch_size)
        for name, part in parts(td):
            if path.rpartition(".")[0] == name:
                batch = list(part.batch_size)
        if source.random() < 0.3:
            batch = batch + [2]
        elif misuse(source) and batch:
            batch = [size + 1 for size in batch]
        elif source.random() < 0.2 and batch:
            return [td, tree(source, batch).apply(lambda x: x, batch_size=batch[:-1])], {"path": path}
        return [td, tree(source, batch, depth=source.randint(0, 2))], {"path": path}

    def run(td, other, arguments):
        return td.set(key(arguments["path"]), other)


@operation("set_", 10)
class _:
    def propose(source):
        td = tree(source)
        path = source.choice(paths(td))
        value = td[key(path)]
        shape = list(value.shape)
        if misuse(source):
            path, shape = source.choice([("zz", shape), (path, [size + 1 for size in shape] or [2])])
        return [td], {"path": path, "value": write_tensor(tensor(source, shape, source.choice(["float", "long"])))}

    def run(td, arguments):
        return td.set_(key(arguments["path"]), tensor_from(arguments["value"]))


@operation("update", 50)
class _:
    def propose(source):
        td = tree(source)
        other = like(source, td)
        if source.random() < 0.5:
            other = other.select(key(source.choice(paths(other))))
        if source.random() < 0.5:
            other["new"] = tensor(source, list(td.batch_size) + [2], "float")
        if misuse(source):  # with the names of `td`, or with others
            other = tree(source, [size + 1 for size in td.batch_size] + [2])
            td = td if source.random() < 0.5 else TensorDict({"zz": td}, batch_size=td.batch_size)
        if source.random() < 0.15:
            td.lock_()
        return [td, other], {"inplace": source.random() < 0.4}

    def run(td, other, arguments):
        return td.update(other, inplace=arguments["inplace"])


@operation("update_", 10)
class _:
    def propose(source):
        td = tree(source)
        other = like(source, td)
        if source.random() < 0.5:
            other = other.select(key(source.choice(paths(other))))
        if misuse(source):
            other["new"] = tensor(source, list(td.batch_size) + [2], "float")
        return [td, other], {}

    def run(td, other, arguments):
        return td.update_(other)


def _some_paths(source, td):
    names = paths(td) + [path for path, _ in parts(td)]
    chosen = source.sample(names, source.randint(0, min(3, len(names))))
    return chosen + ["zz"] if misuse(source) else chosen


@operation("select", 20)
class _:
    def propose(source):
        td = tree(source)
        return [td], {"paths": _some_paths(source, td), "strict": source.random() < 0.7}

    def run(td, arguments):
        return td.select(*map(key, arguments["paths"]), strict=arguments["strict"])


@operation("exclude", 15)
class _:
    def propose(source):
        td = tree(source)
        return [td], {"paths": _some_paths(source, td)}

    def run(td, arguments):
        return td.exclude(*map(key, arguments["paths"]))


@operation("split_keys", 10)
class _:
    def propose(source):
        td = tree(source)
        names = paths(td)
        source.shuffle(names)
        first = names[: source.randint(0, 2)]
        second = [name for name in names[len(first):][: source.randint(0, 2)]]
        return [td], {"lists": [first, second + (["zz"] if misuse(source) else [])]}

    def run(td, arguments):
        return list(td.split_keys(*[[key(path) for path in part] for part in arguments["lists"]]))


@operation("flatten_keys", 10)
class _:
    def propose(source):
        td = tree(source)
        if source.random() < 0.3 and parts(td):
            path = next(path for path in paths(td) if "." in path)
            td[path.replace(".", "/")] = tensor(source, list(td.batch_size), "float")  # collides
        return [td], {}

    def run(td, arguments):
        return td.flatten_keys("/")


@operation("unflatten_keys", 10)
class _:
    def propose(source):
        td = tree(source).flatten_keys("/")
        if source.random() < 0.25 and any("/" in name for name in td.keys()):
            name = next(name for name in td.keys() if "/" in name)
            td[name.rpartition("/")[0]] = tensor(source, list(td.batch_size), "float")  # a leaf where a part will be
        return [td], {}

    def run(td, arguments):
        return td.unflatten_keys("/")


@operation("pop", 8)
class _:
    def propose(source):
        td = tree(source)
        return [td], {"path": "zz" if misuse(source) else source.choice(paths(td))}

    def run(td, arguments):
        value = td.pop(key(arguments["path"]))
        return [value, td]


@operation("erase", 8)
class _:
    def propose(source):
        td = tree(source)
        if source.random() < 0.2:
            td.lock_()
        return [td], {"path": "zz" if misuse(source) else source.choice(paths(td))}

    def run(td, arguments):
        return td.del_(key(arguments["path"]))


@operation("rename_key", 8)
class _:
    def propose(source):
        td = tree(source)
        names = paths(td)
        return [td], {"from": "zz" if misuse(source) else source.choice(names),
                      "to": source.choice(names) if misuse(source) else source.choice(["new", "new.leaf"])}

    def run(td, arguments):
        return td.rename_key_(key(arguments["from"]), key(arguments["to"]), safe=True)


@operation("paths", 5)
class _:
    def propose(source):
        return [tree(source)], {}

    def run(td, arguments):
        return paths(td)


@operation("numel", 5)
class _:
    def propose(source):
        return [tree(source)], {}

    def run(td, arguments):
        return td.param_count()


@operation("bytes", 3)
class _:
    def propose(source):
        return [tree(source)], {}

    def run(td, arguments):
        return td.bytes()
