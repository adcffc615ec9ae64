"""Google Benchmark as the system has it, under the labels that its own repository uses."""

load(":pkg_config.bzl", "pkg_config")

_BUILD = """
cc_library(
    name = "benchmark",
    linkopts = {benchmark},
    visibility = ["//visibility:public"],
)

cc_library(
    name = "benchmark_main",
    linkopts = ["-lbenchmark_main"],  # pkg-config does not know it
    visibility = ["//visibility:public"],
    deps = [":benchmark"],
)
"""

def _benchmark_repository(repository_ctx):
    repository_ctx.file("BUILD.bazel", _BUILD.format(
        benchmark = pkg_config(repository_ctx, "benchmark", "Google Benchmark", "libbenchmark-dev") + ["-lpthread"],
    ), executable = False)

benchmark_repository = repository_rule(
    implementation = _benchmark_repository,
    environ = ["PATH", "PKG_CONFIG_PATH"],
    local = True,
)
