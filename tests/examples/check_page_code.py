"""Fails unless each block of C++ on a page is in a program, line by line, up to indentation."""

import sys


def blocks(page):
    """Returns the blocks that start with ```cpp, each a list of its lines."""
    found, inside = [], False
    for line in page.splitlines():
        if line.startswith("```"):
            inside = line == "```cpp"
            if inside:
                found.append([])
        elif inside:
            found[-1].append(line.strip())
    return found


def contains(program, block):
    return any(program[i : i + len(block)] == block for i in range(len(program)))


def main(page, source):
    with open(page, encoding="utf-8") as file:
        found = blocks(file.read())
    with open(source, encoding="utf-8") as file:
        program = [line.strip() for line in file]
    missing = [block for block in found if not contains(program, block)]
    for block in missing:
        print(f"{page}: not in {source}:\n  " + "\n  ".join(block))
    return 1 if missing or not found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
