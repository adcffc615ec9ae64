#!/usr/bin/env python3
"""Holds the layers: tensordict below functional below vmap, and nothing of them on tests, benchmarks or examples.

Reads the `#include` lines and the labels in BUILD files of every source of the three libraries. Also holds two rules
about what they take from LibTorch: no header includes torch/torch.h, which costs every file that includes it 13 s, and
only the files below include ATen/functorch, which changes between LibTorch releases.
"""

import pathlib
import re
import sys

# What a file in the folder may use: the folder itself and those below it.
LAYERS = {
    "tensordict": {"tensordict"},
    "functional": {"tensordict", "functional"},
    "vmap": {"tensordict", "functional", "vmap"},
}
FOLDERS = set(LAYERS) | {"tests", "benchmarks", "examples"}
USES_FUNCTORCH = re.compile(r"functional/internal/transform_level\.cc|functional/rules/.+")

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
LABEL = re.compile(r'"(?:@graft)?//([^:"]*)(?::[^"]*)?"')
# Who may see a target is not what the target uses.
VISIBILITY = re.compile(r"\b(?:default_)?visibility\s*=\s*\[[^\]]*\]")


def problems(path, text):
    """Returns what is wrong with the file at `path` (from the root of the tree) that holds `text`."""
    layer = path.split("/")[0]
    found = []
    if path.rsplit("/", 1)[-1] in ("BUILD.bazel", "BUILD"):
        text = VISIBILITY.sub("", re.sub(r"#.*", "", text))
        used = [(f"//{package}", package) for package in LABEL.findall(text)]
    else:
        included = [quoted or angled for quoted, angled in INCLUDE.findall(text)]
        used = [(name, name) for name in included if "/" in name]  # <functional> is the standard's
    for name, target in used:
        folder = target.split("/")[0]
        if folder in FOLDERS - LAYERS[layer]:
            found.append(f"{path}: uses {name}, but {layer}/ may use only {', '.join(sorted(LAYERS[layer]))}")
        if name == "torch/torch.h" and path.endswith(".h"):
            found.append(f"{path}: includes torch/torch.h; include what the header names")
        if name.startswith("ATen/functorch/") and not USES_FUNCTORCH.fullmatch(path):
            found.append(f"{path}: includes {name}, which functional/internal/transform_level.cc is there to wrap")
    return found


def check_itself():
    """Fails if a made-up bad file passes or a made-up good one does not."""
    bad = [
        ("tensordict/a.h", '#include "functional/to_module.h"'),
        ("tensordict/a.cc", '  # include <vmap/vmap.h>'),
        ("functional/internal/a.cc", '#include "vmap/vmap.h"'),
        ("vmap/a.cc", '#include "tests/testing/matchers.h"'),
        ("vmap/a.h", "#include <torch/torch.h>"),
        ("functional/grad.cc", "#include <ATen/functorch/DynamicLayer.h>"),
        ("tensordict/BUILD.bazel", 'cc_library(name = "a", deps = ["//functional:to_module"])'),
        ("functional/BUILD.bazel", 'cc_library(name = "a", deps = ["//vmap"])'),
        ("functional/rules/BUILD.bazel", 'cc_library(name = "a", deps = ["@graft//examples:digits"])'),
    ]
    good = [
        ("vmap/a.cc", '#include "vmap/a.h"\n#include "functional/grad.h"\n#include <vector>\n// functional only'),
        ("tensordict/a.h", "#include <functional>"),
        ("functional/internal/transform_level.cc", "#include <ATen/functorch/DynamicLayer.h>"),
        ("functional/rules/loss.cc", "#include <ATen/functorch/BatchRulesHelper.h>\n#include <torch/torch.h>"),
        ("tensordict/BUILD.bazel", 'filegroup(name = "sources", visibility = ["//tests:__subpackages__"])  # "//vmap"'),
        ("functional/BUILD.bazel", 'cc_library(name = "a", deps = [":b", "//tensordict", "@libtorch//:torch"])'),
    ]
    for path, text in bad:
        assert problems(path, text), f"not flagged: {path}: {text}"
    for path, text in good:
        assert not problems(path, text), f"flagged: {problems(path, text)}"


def sources(root):
    """Returns the paths, from `root`, of the three libraries' sources and BUILD files."""
    return [
        str(path.relative_to(root))
        for layer in LAYERS
        for path in sorted((root / layer).rglob("*"))
        if path.suffix in (".h", ".cc", ".inc") or path.name in ("BUILD.bazel", "BUILD")
    ]


def main():
    check_itself()
    # Bazel hands this file as a link into the source tree. All of that is read, so that no package can be forgotten.
    root = pathlib.Path(__file__).resolve().parents[2]
    paths = sources(root)
    found = [problem for path in paths for problem in problems(path, (root / path).read_text(encoding="utf-8"))]
    found += [f"{layer}/: no source found in {root}" for layer in LAYERS if not (root / layer / "BUILD.bazel").exists()]
    print("\n".join(found) or f"{len(paths)} files hold the layers")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
