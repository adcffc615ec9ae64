"""Defines every repository that Graft builds with.

A workspace that uses Graft calls `graft_dependencies()` after it has defined `@graft`. A repository that the workspace
has already defined under one of these names is left alone, so that Graft builds with that one.
"""

load(":abseil.bzl", "abseil_repository")
load(":benchmark.bzl", "benchmark_repository")
load(":cairo.bzl", "cairo_repository")
load(":googletest.bzl", "googletest_repository")
load(":libtorch.bzl", "libtorch_repository")
load(":nlohmann_json.bzl", "nlohmann_json_repository")
load(":zlib.bzl", "zlib_repository")

_REPOSITORIES = {
    "cairo": cairo_repository,
    "com_google_absl": abseil_repository,
    "com_google_benchmark": benchmark_repository,
    "com_google_googletest": googletest_repository,
    "libtorch": libtorch_repository,
    "nlohmann_json": nlohmann_json_repository,
    "zlib": zlib_repository,
}

def graft_dependencies():
    """Defines the repositories that are not defined yet."""
    for name, rule in _REPOSITORIES.items():
        if not native.existing_rule(name):
            rule(name = name)
