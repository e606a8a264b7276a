#!/usr/bin/env bash
# The papers' figures in the simulator with several settings of the algorithms, and docs/research/figures.md of them.
#
# FILTER="TEXT TEXT": only scenarios whose names contain one of these; their page is target/lab/figures.md.
# RESUME=1: runs that are done already, by any build, are not done again.
# QUICK=1: shortened runs, which prove nothing; their page is target/lab/quick/figures.md. OUT=FILE: another page.
# Exit status: that of the runs with default settings, 2 where a claim fails without a reason.
set -euo pipefail
cd "$(dirname "$0")/../.."

lab=target/release/millrace-lab
papers=lab/scenarios/papers
conditions=lab/scenarios/conditions
sets=target/lab/figures
out=docs/research/figures.md
options=(--driver simulator --skip-missing-traces)
if [ -n "${FILTER:-}" ]; then
    out=target/lab/figures.md
    for text in $FILTER; do options+=(--filter "$text"); done
fi
if [ -n "${QUICK:-}" ]; then
    sets=target/lab/quick
    out=$sets/figures.md
    options+=(--quick)
fi

has_results() {
    compgen -G "$1/*/summary.json" >/dev/null
}

# run SET OPTION...: one set of results. It reuses runs of the sets before it with the same settings.
done_sets=()
run() {
    local set=$1 status=0 reuse=()
    shift
    if [ -z "${QUICK:-}" ]; then
        local from=("${done_sets[@]}")
        [ -z "${RESUME:-}" ] || from+=("$set")
        for earlier in "${from[@]}"; do
            if has_results "$sets/$earlier"; then reuse+=(--reuse "$sets/$earlier"); fi
        done
    fi
    $lab run "${options[@]}" "${reuse[@]}" --out "$sets/$set" "$@" >"$sets/$set.txt" || status=$?
    tail -n 1 "$sets/$set.txt"
    done_sets+=("$set")
    return "$status"
}

# variant SET OPTION...: a set of the papers' scenarios with other settings. Where no algorithm has them, it is left out.
variant() {
    local status=0
    echo "$1:"
    run "$@" $papers || status=$?
    [ "$status" = 0 ] || [ "$status" = 64 ] || exit "$status"
}

out=${OUT:-$out}
mkdir -p "$sets"
judged=0
echo default:
run default $papers $conditions || judged=$?
[ "$judged" = 0 ] || [ "$judged" = 2 ] || exit "$judged"
variant published --preset published
variant code --preset nsdi18-code
for baselines in 2018 2018-no-policer; do
    variant "default-$baselines" --baselines "$baselines"
    variant "published-$baselines" --preset published --baselines "$baselines"
    variant "code-$baselines" --preset nsdi18-code --baselines "$baselines"
done

labels=()
for column in published code default; do
    if has_results "$sets/$column"; then labels+=("$column=$sets/$column"); fi
done
for baselines in 2018 2018-no-policer; do
    for column in published code default; do
        set=$column-$baselines
        if has_results "$sets/$set"; then labels+=("$column/$baselines=$sets/$set"); fi
    done
done
$lab report "$sets/default" --out target/lab/report.html --title "Millrace: the papers' figures"
$lab claims "${labels[@]}" --scenarios $papers --scenarios $conditions --out "$out"
exit "$judged"
