"""Vulnerabilities that PyPI lists for the packages of lock files: exit code 1 when there are any, 2 without data."""

import json
import re
import sys
import urllib.error
import urllib.request

from pip._internal.models.index import PyPI

TIMEOUT_S = 5
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)")


def pinned(path):
    with open(path, encoding="utf-8") as lock:
        return {match.groups() for line in lock if (match := PINNED.match(line))}


def vulnerabilities(name, version):
    url = f"{PyPI.pypi_url}/{name}/{version}/json"
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        return json.load(answer)["vulnerabilities"]


def main():
    found = False
    for name, version in sorted(set().union(*map(pinned, sys.argv[1:]))):
        try:
            listed = vulnerabilities(name, version)
        except (OSError, ValueError, KeyError) as error:
            # One that has no data is enough: the rest would wait for the same.
            print(f"{name} {version}: {error}")
            return 1 if found else 2
        for entry in listed:
            if not entry.get("withdrawn"):
                found = True
                print(f"{name} {version}: {entry['id']}: {entry.get('summary') or entry.get('details', '')[:200]}")
    return 1 if found else 0


sys.exit(main())
