"""Abseil as the system has it, under the labels that Abseil's own repository uses."""

load(":pkg_config.bzl", "as_needed", "pkg_config")

# Package -> target -> name for pkg-config, which knows no packages.
_TARGETS = {
    "algorithm": {"container": "absl_algorithm_container"},
    "base": {
        "config": "absl_config",
        "core_headers": "absl_core_headers",
    },
    "cleanup": {"cleanup": "absl_cleanup"},
    "container": {
        "fixed_array": "absl_fixed_array",
        "flat_hash_map": "absl_flat_hash_map",
        "flat_hash_set": "absl_flat_hash_set",
        "inlined_vector": "absl_inlined_vector",
        "node_hash_map": "absl_node_hash_map",
        "node_hash_set": "absl_node_hash_set",
    },
    "flags": {
        "commandlineflag": "absl_flags_commandlineflag",
        "flag": "absl_flags",
        "parse": "absl_flags_parse",
        "reflection": "absl_flags_reflection",
        "usage": "absl_flags_usage",
    },
    "functional": {
        "bind_front": "absl_bind_front",
        "function_ref": "absl_function_ref",
    },
    "hash": {"hash": "absl_hash"},
    "memory": {"memory": "absl_memory"},
    "meta": {"type_traits": "absl_type_traits"},
    "numeric": {
        "bits": "absl_bits",
        "int128": "absl_int128",
    },
    "random": {"random": "absl_random_random"},
    "status": {
        "status": "absl_status",
        "statusor": "absl_statusor",
    },
    "strings": {
        "cord": "absl_cord",
        "str_format": "absl_str_format",
        "strings": "absl_strings",
    },
    "synchronization": {"synchronization": "absl_synchronization"},
    "time": {"time": "absl_time"},
    "types": {
        "any": "absl_any",
        "optional": "absl_optional",
        "span": "absl_span",
        "variant": "absl_variant",
    },
    "utility": {"utility": "absl_utility"},
}

# The headers stand in /usr/include, where the compiler looks anyway.
_LIBRARY = """
cc_library(
    name = "{name}",
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
"""

def _abseil_repository(repository_ctx):
    for package, targets in _TARGETS.items():
        libraries = [
            _LIBRARY.format(
                name = name,
                linkopts = as_needed(pkg_config(repository_ctx, module, "Abseil", "libabsl-dev")),
            )
            for name, module in targets.items()
        ]
        repository_ctx.file("absl/%s/BUILD.bazel" % package, "".join(libraries), executable = False)

abseil_repository = repository_rule(
    implementation = _abseil_repository,
    environ = ["PATH", "PKG_CONFIG_PATH"],
    local = True,
)
