"""Libraries that the system has installed, found with pkg-config."""

def pkg_config(repository_ctx, module, library, package, flags = ["--libs"]):
    """Asks pkg-config about one installed library.

    Args:
      repository_ctx: the context of the repository rule.
      module: the library's name for pkg-config, as in `cairo`.
      library: the library's name for people, as in `Cairo`.
      package: the Debian package that brings it, as in `libcairo2-dev`.
      flags: what to ask.

    Returns:
      The words that pkg-config answers. Fails, naming the command that helps, if the library is not there.
    """
    tool = repository_ctx.which("pkg-config")
    if not tool:
        fail(_missing("pkg-config, to find " + library, "pkg-config " + package))
    result = repository_ctx.execute([tool] + flags + [module])
    if result.return_code != 0:
        fail(_missing("%s (pkg-config does not know %s)" % (library, module), package))
    return [word for word in result.stdout.strip().split(" ") if word]

def as_needed(linkopts):
    """Wraps linkopts so that a binary loads only the libraries among them that it uses."""
    if not linkopts:
        return []
    return ["-Wl,--push-state,--as-needed"] + linkopts + ["-Wl,--pop-state"]

def _missing(what, packages):
    return ("Graft needs %s.\n" % what +
            "Run ./bazelw in place of bazel: it installs what is missing. Or install it yourself:\n" +
            "  sudo apt-get install %s\n" % packages)
