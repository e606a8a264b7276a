#!/bin/sh
# Fetches an ffmpeg that has libvmaf (Debian's has not) into target/tools/vmaf, and says where it is. Does
# nothing that is done already.
set -eu
cd "$(dirname "$0")/../.."

venv=$PWD/target/tools/vmaf
locked=player/vmaf-requirements.txt
if ! cmp -s $locked "$venv/requirements.txt"; then
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes --requirement $locked
    cp $locked "$venv/requirements.txt"
fi
"$venv/bin/python" -c 'import imageio_ffmpeg; print(imageio_ffmpeg.get_ffmpeg_exe())'
