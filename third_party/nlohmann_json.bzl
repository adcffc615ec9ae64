"""nlohmann-json as the system has it, under the label that its own repository uses.

LibTorch's headers of functional transforms (ATen/functorch) include it.
"""

load(":pkg_config.bzl", "pkg_config")

# Headers only, and they stand in /usr/include, where the compiler looks anyway.
_BUILD = """
cc_library(
    name = "json",
    visibility = ["//visibility:public"],
)
"""

def _nlohmann_json_repository(repository_ctx):
    pkg_config(repository_ctx, "nlohmann_json", "nlohmann-json", "nlohmann-json3-dev")
    repository_ctx.file("BUILD.bazel", _BUILD, executable = False)

nlohmann_json_repository = repository_rule(
    implementation = _nlohmann_json_repository,
    environ = ["PATH", "PKG_CONFIG_PATH"],
    local = True,
)
