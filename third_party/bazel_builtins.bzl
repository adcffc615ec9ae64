"""Stand-ins for repositories that Bazel itself names and would fetch from the network.

Bazel's own C++ and test rules load @rules_cc, @rules_java and @rules_proto, all of which only re-export rules that are
built into Bazel 4, and a cc_test names @remote_coverage_tools even when no coverage is asked for.
"""

_DEFS = {
    "rules_cc": ("cc/defs.bzl", [
        "cc_binary",
        "cc_import",
        "cc_library",
        "cc_proto_library",
        "cc_test",
        "cc_toolchain",
        "cc_toolchain_suite",
        "objc_library",
    ]),
    "rules_java": ("java/defs.bzl", [
        "java_binary",
        "java_import",
        "java_library",
        "java_proto_library",
        "java_runtime",
        "java_test",
        "java_toolchain",
    ]),
    "rules_proto": ("proto/defs.bzl", [
        "proto_lang_toolchain",
        "proto_library",
    ]),
}

_COVERAGE_TOOLS = """
filegroup(
    name = "coverage_report_generator",
    visibility = ["//visibility:public"],
)
"""

def _native_rules_repository(repository_ctx):
    path = repository_ctx.attr.path
    repository_ctx.file(path.rsplit("/", 1)[0] + "/BUILD.bazel", "exports_files(glob([\"*.bzl\"]))\n", executable = False)
    repository_ctx.file(
        path,
        "".join(["%s = native.%s\n" % (name, name) for name in repository_ctx.attr.names]),
        executable = False,
    )

_native_rules_repository_rule = repository_rule(
    implementation = _native_rules_repository,
    attrs = {
        "names": attr.string_list(),
        "path": attr.string(),
    },
)

def _coverage_tools_repository(repository_ctx):
    repository_ctx.file("BUILD.bazel", _COVERAGE_TOOLS, executable = False)

_coverage_tools_repository_rule = repository_rule(implementation = _coverage_tools_repository)

def bazel_builtins():
    """Defines the stand-ins whose names are not defined yet. A later Bazel than 4 needs its own and gets none."""
    major = native.bazel_version.split(".")[0]
    if major.isdigit() and int(major) > 4:
        return
    for name, (path, names) in _DEFS.items():
        if not native.existing_rule(name):
            _native_rules_repository_rule(name = name, path = path, names = names)
    if not native.existing_rule("remote_coverage_tools"):
        _coverage_tools_repository_rule(name = "remote_coverage_tools")
