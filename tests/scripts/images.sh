#!/bin/sh
# Fails on a base image that is not pinned by its digest: a tag may be another image tomorrow. Images that
# docker-compose.yml builds have tags of our own, and stages of a build have names.
# The digests are those of docker-library/repo-info, which lists them by tag and date.
set -eu
cd "$(dirname "$0")/../.."

unpinned=$(git ls-files -- '*Dockerfile' '*Dockerfile.*' | xargs awk '
    function is_pinned(image) { return image ~ /@sha256:[0-9a-f]+$/ && length(image) == index(image, "@") + 71 }
    FNR == 1 { split("", stages); split("", defaults) }
    toupper($1) == "ARG" { equals = index($2, "="); defaults["${" substr($2, 1, equals - 1) "}"] = substr($2, equals + 1) }
    toupper($1) == "FROM" {
        image = ($2 ~ /^--/) ? $3 : $2
        if (image in defaults) image = defaults[image]
        for (i = 2; i < NF; i++) if (toupper($i) == "AS") stages[$(i + 1)]
        if (!is_pinned(image) && !(image in stages) && image != "scratch") print FILENAME ":" FNR ": " image
    }'
    git ls-files -- '*compose*.yml' '*compose*.yaml' '*kubernetes/*.yaml' |
        xargs awk '$1 == "image:" && $2 !~ /^millrace-/ && $2 !~ /@sha256:/ { print FILENAME ":" FNR ": " $2 }')
if [ -n "$unpinned" ]; then
    echo "images.sh: not pinned by digest (NAME:TAG@sha256:DIGEST):" >&2
    echo "$unpinned" >&2
    exit 1
fi
