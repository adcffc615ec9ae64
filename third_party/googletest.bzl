"""GoogleTest and GoogleMock as the system has them, under the labels that their own repository uses."""

load(":pkg_config.bzl", "pkg_config")

# As in the original, each of the two targets has GoogleMock too.
_BUILD = """
cc_library(
    name = "gtest",
    linkopts = {gtest},
    visibility = ["//visibility:public"],
)

cc_library(
    name = "gtest_main",
    linkopts = {gtest_main},
    visibility = ["//visibility:public"],
    deps = [":gtest"],
)
"""

def _googletest_repository(repository_ctx):
    repository_ctx.file("BUILD.bazel", _BUILD.format(
        gtest = pkg_config(repository_ctx, "gmock", "GoogleTest", "libgtest-dev libgmock-dev"),
        gtest_main = pkg_config(repository_ctx, "gmock_main", "GoogleTest", "libgtest-dev libgmock-dev"),
    ), executable = False)

googletest_repository = repository_rule(
    implementation = _googletest_repository,
    environ = ["PATH", "PKG_CONFIG_PATH"],
    local = True,
)
