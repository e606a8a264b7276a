"""Entries of the Go vulnerability database for packages that are built: exit code 1 when there are any.

Arguments: what `go mod download -json golang.org/x/vulndb@latest` wrote, and a file with a line
PACKAGE MODULE VERSION for each package.
"""

import glob
import json
import sys


def key(version):
    """Orders versions (Semantic Versioning 2.0.0, section 11): a pre-release is below its release."""
    core, _, pre = version.removeprefix("v").split("+")[0].partition("-")
    numbers = tuple(int(part) for part in core.split("."))
    parts = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in pre.split(".")]
    return (numbers + (0, 0))[:3], pre == "", parts


def is_affected(version, ranges):
    for one in ranges:
        inside = False
        for event in one.get("events", []):
            if "introduced" in event:
                inside = inside or event["introduced"] == "0" or key(event["introduced"]) <= key(version)
            elif "fixed" in event and key(event["fixed"]) <= key(version):
                inside = False
        if inside:
            return True
    return not ranges


def main():
    database, modules = sys.argv[1:]
    with open(database, encoding="utf-8") as file:
        directory = json.load(file)["Dir"]
    with open(modules, encoding="utf-8") as file:
        lines = [fields for line in file if len(fields := line.split()) == 3]
    built = {module: version for _, module, version in lines}
    packages = {package for package, _, _ in lines}
    entries = glob.glob(f"{directory}/data/osv/GO-*.json")
    if not entries or not built:
        print(f"{len(entries)} advisories and {len(built)} modules: there is nothing to compare")
        return 2
    found = False
    for path in sorted(entries):
        with open(path, encoding="utf-8") as file:
            entry = json.load(file)
        for affected in entry.get("affected", []) if not entry.get("withdrawn") else []:
            name = affected["package"]["name"]
            imports = {one["path"] for one in affected.get("ecosystem_specific", {}).get("imports", [])}
            if name not in built or (imports and not imports & packages):
                continue
            if is_affected(built[name], affected.get("ranges", [])):
                found = True
                print(f"{name} {built[name]}: {entry['id']}: {entry.get('summary', '')}")
    return 1 if found else 0


sys.exit(main())
