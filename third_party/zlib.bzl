"""zlib as the system has it: checksums of zip archives. Include it as <zlib.h>."""

load(":pkg_config.bzl", "pkg_config")

# The header stands in /usr/include.
_BUILD = """
cc_library(
    name = "zlib",
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
"""

def _zlib_repository(repository_ctx):
    repository_ctx.file("BUILD.bazel", _BUILD.format(
        linkopts = pkg_config(repository_ctx, "zlib", "zlib", "zlib1g-dev"),
    ), executable = False)

zlib_repository = repository_rule(
    implementation = _zlib_repository,
    environ = ["PATH", "PKG_CONFIG_PATH"],
    local = True,
)
