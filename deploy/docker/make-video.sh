#!/bin/sh
# Makes the example's video in directory $1: a test picture with a clock and a tone, 30 s, as DASH
# in three rungs, as HLS over the same segments, and as one file to download.
set -eu
mkdir -p "$1"
cd "$1"

run_ffmpeg() { ffmpeg -hide_banner -loglevel error -nostdin "$@"; }

# Key frames every 2 s, the length of a segment.
run_ffmpeg \
    -f lavfi -i "testsrc2=size=1280x720:rate=25:duration=30" \
    -f lavfi -i "sine=frequency=440:sample_rate=48000:duration=30" \
    -filter_complex "[0:v]split=3[a][b][c];[b]scale=854:480[m];[c]scale=426:240[s]" \
    -map "[a]" -map "[m]" -map "[s]" -map 1:a \
    -c:v libx264 -preset ultrafast -pix_fmt yuv420p -g 50 -keyint_min 50 -sc_threshold 0 \
    -b:v:0 2500k -maxrate:v:0 2500k -bufsize:v:0 2500k \
    -b:v:1 1000k -maxrate:v:1 1000k -bufsize:v:1 1000k \
    -b:v:2 350k -maxrate:v:2 350k -bufsize:v:2 350k \
    -c:a aac -b:a 96k rungs.mp4
run_ffmpeg -i rungs.mp4 -map 0 -c copy \
    -f dash -seg_duration 2 -use_template 1 -use_timeline 0 -hls_playlist 1 \
    -adaptation_sets "id=0,streams=v id=1,streams=a" manifest.mpd
run_ffmpeg -i rungs.mp4 -map 0:v:0 -map 0:a:0 -c copy -movflags +faststart video.mp4
rm rungs.mp4
