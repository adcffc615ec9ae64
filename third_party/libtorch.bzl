"""LibTorch: the one inside an installed torch wheel, or one that was unpacked by hand.

The folder is looked for in this order:

1. `LIBTORCH`, if that variable is set: the folder that holds include/ and lib/;
2. the torch of `python3`;
3. the torch of Graft's private environment, which ./bazelw makes.

Graft names functions of LibTorch that change between releases, so only the releases it was tested with are taken.
"""

_SUPPORTED = ["2.13"]
_INSTALL = "2.13.0"

# find_spec does not import torch, which takes seconds.
_FIND_TORCH = """
import importlib.util
spec = importlib.util.find_spec("torch")
print(spec.submodule_search_locations[0] if spec and spec.submodule_search_locations else "")
"""

# `includes` become -isystem, so that our warnings do not see LibTorch's headers. The libraries are linked where they
# lie, with that folder as rpath: a CUDA build finds its own libraries relative to it.
_BUILD = """
cc_library(
    name = "torch",
    hdrs = glob([
        "include/**/*.h",
        "include/**/*.hpp",
        "include/**/*.cuh",
    ]),
    includes = [
        "include",
        "include/torch/csrc/api/include",
    ],
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
"""

def _release(repository_ctx, folder):
    """Reads the release ("2.13.0") from the headers under `folder`, None if that is no LibTorch."""
    if not folder.get_child("lib").get_child("libtorch_cpu.so").exists:
        return None
    for header in ["torch/headeronly/version.h", "torch/csrc/api/include/torch/version.h"]:
        path = repository_ctx.path(str(folder) + "/include/" + header)
        if not path.exists:
            continue
        numbers = {}
        for line in repository_ctx.read(path).split("\n"):
            words = line.split(" ")
            if len(words) == 3 and words[0] == "#define" and words[1].startswith("TORCH_VERSION_"):
                numbers[words[1][len("TORCH_VERSION_"):]] = words[2]
        if "MAJOR" in numbers and "MINOR" in numbers and "PATCH" in numbers:
            return "%s.%s.%s" % (numbers["MAJOR"], numbers["MINOR"], numbers["PATCH"])
    return None

def _torch_of_python3(repository_ctx):
    python3 = repository_ctx.which("python3")
    if not python3:
        return None
    result = repository_ctx.execute([python3, "-c", _FIND_TORCH])
    folder = result.stdout.strip()
    return repository_ctx.path(folder) if result.return_code == 0 and folder else None

def _torch_of_private_environment(repository_ctx):
    environ = repository_ctx.os.environ
    cache = environ.get("XDG_CACHE_HOME") or environ.get("HOME", "") + "/.cache"
    lib = repository_ctx.path(cache + "/graft/venv/lib")
    if not lib.exists:
        return None
    for python in lib.readdir():
        folder = python.get_child("site-packages").get_child("torch")
        if folder.exists:
            return folder
    return None

def _find(repository_ctx):
    """Returns the folder of LibTorch, or fails with what was looked at and what to do."""
    named = repository_ctx.os.environ.get("LIBTORCH")
    if named:
        places = [("LIBTORCH", repository_ctx.path(named))]
    else:
        places = [
            ("python3's torch", _torch_of_python3(repository_ctx)),
            ("Graft's private environment", _torch_of_private_environment(repository_ctx)),
        ]
    seen = []
    for place, folder in places:
        if not folder:
            seen.append("%s: none" % place)
            continue
        release = _release(repository_ctx, folder)
        if not release:
            seen.append("%s: no include/ and lib/ of LibTorch in %s" % (place, folder))
        elif ".".join(release.split(".")[:2]) not in _SUPPORTED:
            seen.append("%s: release %s in %s" % (place, release, folder))
        else:
            return folder
    fail(("Graft needs LibTorch %s. What was found:\n  %s\n" % (" or ".join(_SUPPORTED), "\n  ".join(seen))) +
         ("Unset LIBTORCH, or let it name a folder with include/ and lib/ of that release.\n" if named else
         "Run ./bazelw in place of bazel: it installs what is missing. Or install it yourself:\n" +
         "  python3 -m pip install torch==%s\n" % _INSTALL +
         "Or set LIBTORCH to a folder with include/ and lib/ of that release.\n"))

def _libtorch_repository(repository_ctx):
    folder = _find(repository_ctx)
    repository_ctx.symlink(folder.get_child("include"), "include")
    lib = folder.get_child("lib")

    # A CUDA build registers its kernels when its libraries are loaded; no symbol of theirs is named.
    libraries = ["torch", "torch_cpu", "c10"]
    for cuda_library in ["torch_cuda", "c10_cuda"]:
        if lib.get_child("lib%s.so" % cuda_library).exists:
            libraries.append(cuda_library)
    linkopts = ["-L%s" % lib, "-Wl,-rpath,%s" % lib, "-Wl,--push-state,--no-as-needed"]
    linkopts += ["-l" + library for library in libraries] + ["-Wl,--pop-state"]
    if "torch_cuda" in libraries:
        # What those need in turn (cuBLAS, cuDNN, ...) is found by the loader, not by the linker.
        linkopts.append("-Wl,--allow-shlib-undefined")
    repository_ctx.file("BUILD.bazel", _BUILD.format(linkopts = linkopts), executable = False)

libtorch_repository = repository_rule(
    implementation = _libtorch_repository,
    environ = ["HOME", "LIBTORCH", "PATH", "XDG_CACHE_HOME"],
    local = True,
)
