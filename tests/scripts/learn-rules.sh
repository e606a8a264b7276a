#!/bin/sh
# Learns MCC's rules from simulated paths, and evaluates them on held-out paths over held-out recordings. Seeds, paths,
# candidates and the utility are those of learner/training.toml.
set -eu
cd "$(dirname "$0")/../.."

lab=target/release/millrace-lab
learner=target/learner/venv/bin/millrace-learner
data=target/learner/dataset
rules=cc/mcc/rules/learned.lua
frozen="--training learner/training.toml"
training=$($learner dataset-options training $frozen)
held_out=$($learner dataset-options evaluation $frozen)

$lab dataset $training --out $data/training.parquet
$learner learn $data/training.parquet --out $rules $frozen

$lab dataset $held_out --out $data/singles.parquet
$lab dataset $held_out --rules $rules --out $data/selected.parquet
$learner evaluate --singles $data/singles.parquet --selected $data/selected.parquet $frozen
