"""Cairo as the system has it: some examples draw with it. Include it as <cairo/cairo.h>."""

load(":pkg_config.bzl", "pkg_config")

# The headers stand in /usr/include/cairo, so the compiler finds cairo/cairo.h anyway.
_BUILD = """
cc_library(
    name = "cairo",
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
"""

def _cairo_repository(repository_ctx):
    repository_ctx.file("BUILD.bazel", _BUILD.format(
        linkopts = pkg_config(repository_ctx, "cairo", "Cairo", "libcairo2-dev"),
    ), executable = False)

cairo_repository = repository_rule(
    implementation = _cairo_repository,
    environ = ["PATH", "PKG_CONFIG_PATH"],
    local = True,
)
