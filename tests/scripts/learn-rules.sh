#!/bin/sh
# Learns MCC's rules from simulated paths, and evaluates them on held-out paths over held-out recordings.
set -eu
cd "$(dirname "$0")/../.."

lab=target/release/millrace-lab
learner=target/learner/venv/bin/millrace-learner
data=target/learner/dataset
rules=cc/mcc/rules/learned.lua
training="--seed 1 --paths 1600 --recorded training --split-seed 1"
held_out="--seed 1 --from 2000 --paths 300 --repeat 3 --recorded held-out --split-seed 1"

$lab dataset $training --out $data/training.parquet
$learner learn $data/training.parquet --out $rules

$lab dataset $held_out --out $data/singles.parquet
$lab dataset $held_out --rules $rules --out $data/selected.parquet
$learner evaluate --singles $data/singles.parquet --selected $data/selected.parquet
