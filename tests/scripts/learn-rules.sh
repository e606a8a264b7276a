#!/bin/sh
# Learns MCC's rules from paths of the simulator, and judges them on others, over other recordings.
set -eu
cd "$(dirname "$0")/../.."

lab=target/release/millrace-lab
learner=target/learner/venv/bin/millrace-learner
grid=target/learner/grid
rules=cc/mcc/rules/learned.lua
training="--seed 1 --paths 1600 --recorded training --split-seed 1"
held_out="--seed 1 --from 2000 --paths 300 --repeat 3 --recorded held-out --split-seed 1"

$lab grid $training --out $grid/training.parquet
$learner learn $grid/training.parquet --out $rules

$lab grid $held_out --out $grid/singles.parquet
$lab grid $held_out --rules $rules --out $grid/selected.parquet
$learner evaluate --singles $grid/singles.parquet --selected $grid/selected.parquet
