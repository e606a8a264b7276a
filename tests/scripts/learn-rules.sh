#!/bin/sh
# Learns MCC's rules from paths of the simulator, and judges them on others, over other recordings. What a path
# looks like depends on who drives, so rules are learnt again from what they met, twice.
set -eu
cd "$(dirname "$0")/../.."

lab=target/release/millrace-lab
learner=target/learner/venv/bin/millrace-learner
grid=target/learner/grid
rules=cc/mcc/rules/learned.lua
training="--seed 1 --paths 1000 --recorded training --split-seed 1"
held_out="--seed 1 --from 1000 --paths 300 --repeat 3 --recorded held-out --split-seed 1"

$lab grid $training --out $grid/training.parquet
$learner learn $grid/training.parquet --out $grid/first.lua
$lab grid $training --rules $grid/first.lua --out $grid/visited/1.parquet
$learner learn $grid/training.parquet --visited $grid/visited/1.parquet --out $grid/second.lua
$lab grid $training --rules $grid/second.lua --out $grid/visited/2.parquet
$learner learn $grid/training.parquet --visited $grid/visited/1.parquet $grid/visited/2.parquet --out $rules

$lab grid $held_out --out $grid/singles.parquet
$lab grid $held_out --rules $rules --out $grid/selected.parquet
$learner evaluate --singles $grid/singles.parquet --selected $grid/selected.parquet
