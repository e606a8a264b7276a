#!/usr/bin/env python3
"""Writes the licences of all that is linked into the two programs, with their texts, to standard output.

licences.py TARGET ZIG: of the crates that cargo links for this Rust target, and of the libraries in the directory ZIG
of the cross compiler; without ZIG, of the crates only.
"""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

PROGRAMS = ["millrace-client", "millrace-server"]
# C sources that are compiled by build scripts, below the directory of a crate.
C_SOURCES = {
    "boring-sys": [("BoringSSL", "deps/boringssl/LICENSE")],
    "lua-src": [("Lua", "lua-5.4*/lua.h")],
}
# What the cross compiler links into the programs.
ZIG_LIBRARIES = [
    ("LLVM libc++", "lib/libcxx/LICENSE.TXT"),
    ("LLVM libc++abi", "lib/libcxxabi/LICENSE.TXT"),
    ("LLVM libunwind", "lib/libunwind/LICENSE.TXT"),
    ("Zig compiler-rt", "LICENSE"),
]
RUST = "Copyright (c) The Rust Project Contributors. https://github.com/rust-lang/rust/blob/HEAD/COPYRIGHT"
LLVM = "Apache-2.0 WITH LLVM-exception"


def main(target, zig=None):
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    components = []
    for package in linked(metadata):
        directory = Path(package["manifest_path"]).parent
        name = f"{package['name']} {package['version']}"
        if not package["source"] and package["name"] != "quiche":
            continue
        texts = [file.read_text(errors="replace") for file in licence_files(directory)]
        for title, pattern in C_SOURCES.get(package["name"], []):
            files = sorted(directory.glob(pattern))
            if not files:
                sys.exit(f"licences.py: {name} has no {pattern}")
            components.append((title, "as the text says", [text_of(files[0])]))
        expression = package["license"] or "as the text says"
        components.append((name, expression, texts or [without_text(package)]))
    if zig:
        for title, file in ZIG_LIBRARIES:
            expression = LLVM if title.startswith("LLVM") else "MIT"
            components.append((title, expression, [(Path(zig) / file).read_text(errors="replace")]))
    components.append(("Rust standard library", "MIT OR Apache-2.0", [RUST]))
    write(components)


def linked(metadata):
    """Packages that the programs reach by normal dependencies, and those that bring C sources."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    pending = [id for id, package in packages.items() if package["name"] in PROGRAMS]
    seen = set()
    while pending:
        id = pending.pop()
        if id in seen:
            continue
        seen.add(id)
        for dependency in nodes[id]["deps"]:
            is_linked = any(not kind["kind"] for kind in dependency["dep_kinds"])
            if is_linked or packages[dependency["pkg"]]["name"] in C_SOURCES:
                pending.append(dependency["pkg"])
    return sorted((packages[id] for id in seen), key=lambda package: (package["name"], package["version"]))


def licence_files(directory):
    prefixes = ("LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE")
    return sorted(f for f in directory.iterdir() if f.is_file() and f.name.upper().startswith(prefixes))


def text_of(file):
    """The text of a licence file; of a header the comment at its end, which has Lua's."""
    text = file.read_text(errors="replace")
    if file.suffix != ".h":
        return text
    start = text.rindex("/*****")
    if "Permission is hereby granted" not in text[start:]:
        sys.exit(f"licences.py: {file} does not end with a licence")
    return text[start:]


def without_text(package):
    authors = ", ".join(package["authors"]) or "its authors"
    return f"The package has no file with the text. Copyright: {authors}. {package['repository'] or ''}"


def write(components):
    numbers, texts = {}, []
    lines = []
    for name, expression, own in components:
        used = []
        for text in own:
            text = "\n".join(line.rstrip() for line in text.strip().splitlines())
            digest = hashlib.sha256(text.encode()).digest()
            if digest not in numbers:
                texts.append(text)
                numbers[digest] = len(texts)
            used.append(str(numbers[digest]))
        lines.append(f"{name:<40} {expression:<50} {', '.join(used)}")
    print("Components of millrace-client and millrace-server: name, licence (SPDX), numbers of the texts below.\n")
    print("\n".join(lines))
    for number, text in enumerate(texts, 1):
        print(f"\n{'=' * 100}\n{number}\n{'=' * 100}\n\n{text}")


if __name__ == "__main__":
    main(*sys.argv[1:])
