# Targets for users and CI. `make demo` and `make test` set up what they need.

LAB := target/release/millrace-lab
# The parts that make namespaces need root.
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo --preserve-env=PATH,HOME,CI)
# With `--package` cargo would select other features of dependencies than for the workspace, and build them again.
CARGO_BUILD := cargo build --release --workspace

.PHONY: help setup programs dist build workspace pages pages-built demo figures lab-build lab lab-full qoe rtsp-table rules archive test test-full check advisories docs reference unit \
	bench bench-connections coverage mutants clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 10

setup: ## Install what is missing: Debian packages, quiche's patched source, npm packages
	tests/scripts/setup.sh

programs: ## Build millrace-client and millrace-server alone; needs Rust and Debian's compilers, no Node.js
	tests/scripts/setup.sh programs
	$(CARGO_BUILD) --bin millrace-client --bin millrace-server

# ARCHITECTURES=amd64 for one of both.
dist: ## Archives, Debian packages and images of the two programs for amd64 and arm64; target/dist
	tests/scripts/setup.sh dist
	packaging/dist.sh

# The pages are built beside the programs: cargo uses one processor only much of the time.
build: setup ## Build everything
	$(MAKE) --no-print-directory pages & pages=$$!; $(MAKE) --no-print-directory workspace && wait $$pages

# Without benchmarks, which `bench` builds.
workspace: setup
	$(CARGO_BUILD) --lib --bins --tests --examples

pages: setup pages-built

# After any of the set-ups with npm's packages.
pages-built:
	(cd player && npm run build) & player=$$!; (cd lab/web && npm run build) && wait $$player

# PROGRAMS=DIRECTORY as an argument takes the three programs from there; in the environment it is for Compose.
demo: ## Play a real video through the tunnel and over plain TCP; target/demo/report.html
	PROGRAMS="$(if $(filter command,$(origin PROGRAMS)),$(PROGRAMS))" lab/make-demo.sh

# Incremental builds are not for measuring the tunnel: the compiler optimises less across modules.
lab-build: setup ## Build millrace-lab, in seconds after a change in cc/ or lab/
	CARGO_INCREMENTAL=1 $(CARGO_BUILD) --bin millrace-lab

# FILTER="TEXT TEXT", RESUME=1, QUICK=1: tests/scripts/figures.sh.
figures: setup ## The papers' figures in the simulator, claims judged; docs/research/figures.md, target/lab/report.html
	$(CARGO_BUILD) --bin millrace-lab
	cd lab/web && npm run build
	FILTER="$(FILTER)" RESUME="$(RESUME)" QUICK="$(QUICK)" tests/scripts/figures.sh

# `lab` runs a selection; `lab-full` runs all scenarios, and the simulator on those that it supports.
REAL := lab/scenarios/real
lab: build ## Scenarios with real packets (15 minutes, as root); target/lab/lab.html
	$(AS_ROOT) $(LAB) run --driver emulator $(REAL) --filter wire-loss --filter wire-up \
		--filter wire-shared --filter wire-rtts --filter wire-peer --filter wire-many; \
	judged=$$?; [ $$judged = 0 ] || [ $$judged = 2 ] || exit $$judged; \
	$(LAB) report target/lab/emulated --out target/lab/lab.html --title "Millrace on real packets" \
		--table target/lab/lab.md && exit $$judged

lab-full: build ## All scenarios with real packets, and the simulator beside them (about 1.5 hours); target/lab/lab-full.html
	$(AS_ROOT) $(LAB) run --driver emulator $(REAL) lab/scenarios/parity --skip-missing-traces; \
	judged=$$?; [ $$judged = 0 ] || [ $$judged = 2 ] || exit $$judged; \
	$(LAB) run --driver simulator $(REAL) lab/scenarios/parity --skip-missing-traces --out target/lab/simulated; \
	simulated=$$?; [ $$simulated = 0 ] || [ $$simulated = 2 ] || exit $$simulated; \
	$(LAB) report simulator=target/lab/simulated emulator=target/lab/emulated \
		--out target/lab/lab-full.html --title "Millrace on real packets" && exit $$judged

qoe: build ## Players in browsers and of streams, as root (hours; FILTER=iris-fig15 for one scenario); target/lab/qoe.html
	tests/scripts/live555.sh
	$(AS_ROOT) $(LAB) run --driver emulator lab/scenarios/players \
		$(if $(FILTER),--filter $(FILTER)) --out target/lab/qoe; \
	judged=$$?; [ $$judged = 0 ] || [ $$judged = 2 ] || exit $$judged; \
	$(LAB) report target/lab/qoe --out target/lab/qoe.html --title "What viewers saw" && exit $$judged

# AGAIN=1 measures cells that are done, too; ONLY=TEXT those with TEXT in their names.
rtsp-table: build ## RTSP servers and players, directly and through the tunnel, as root (15 minutes); docs/research/rtsp-players.md
	$(AS_ROOT) tests/scripts/rtsp-table.sh $(if $(AGAIN),--again) $(if $(ONLY),--only "$(ONLY)")

# A third of the recorded links, drawn by a seed, and the paths from 2000 on are held out.
rules: setup ## Learn MCC's rules in the simulator, and evaluate them on held-out paths (20 minutes)
	$(CARGO_BUILD) --bin millrace-lab
	tests/scripts/learner-venv.sh
	tests/scripts/learn-rules.sh

archive: ## Archive results in docs/research/results: make archive FROM=target/lab/qoe
	$(LAB) archive --runs $(FROM)

test: setup ## Lint, unit, end to end, player, soak, fuzz; some of it as root
	tests/scripts/test.sh

test-full: setup ## The same, with long soaks, sweeps and repeated measurements (hours)
	tests/scripts/test.sh full

check: setup ## Links of the documentation, format, lints, licences, sources and advisories of dependencies, pinned images, strict TypeScript
	tests/scripts/check.sh

advisories: setup ## Known vulnerabilities in dependencies: Rust, npm, Python, Go; fails where the data can't be had
	tests/scripts/advisories.sh all

# The toolchain is that of rust-toolchain.toml; a build of mdBook takes some minutes.
MDBOOK_VERSION := 0.5.4
MDBOOK := target/tools/bin/mdbook
docs: ## The documentation as a book, its links checked; target/book/index.html
	[ "$$($(MDBOOK) --version 2>/dev/null)" = "mdbook v$(MDBOOK_VERSION)" ] || \
		cargo install --locked mdbook --version $(MDBOOK_VERSION) --no-default-features --features search --root target/tools
	rm -rf target/book
	$(MDBOOK) build docs
	node tests/scripts/book-check.mjs target/book

reference: setup ## Reference pages from the code; docs/reference/
	$(CARGO_BUILD) --bin millrace-reference
	target/release/millrace-reference

unit: setup ## The tests that need neither root nor the network
	cargo test --release --workspace
	nginx-conf/lua/test.sh

# Tools of their own, pinned, built once into target/tools.
LLVM_COV_VERSION := 0.9.1
coverage: setup ## Lines that the unit tests reach; target/coverage/html/index.html
	tests/scripts/cargo-tool.sh cargo-llvm-cov $(LLVM_COV_VERSION)
	rustup component add llvm-tools
	PATH="$(CURDIR)/target/tools/bin:$$PATH" cargo llvm-cov --workspace --exclude millrace-e2e --lib --html --output-dir target/coverage

MUTANTS_VERSION := 27.1.0
mutants: setup ## Mutants of destination rules, wire parsers and admission that no test notices (hours); target/mutants/
	tests/scripts/cargo-tool.sh cargo-mutants $(MUTANTS_VERSION)
	PATH="$(CURDIR)/target/tools/bin:$$PATH" tests/scripts/mutants.sh

bench: build ## Throughput and CPU beside plain TCP and nginx, cost of each algorithm, speed of the simulator; target/bench/
	cargo bench --package millrace-replay
	cargo bench --package millrace-mcc
	target/release/millrace-bench controllers
	target/release/millrace-bench simulator
	$(AS_ROOT) target/release/millrace-bench data-path
	$(AS_ROOT) target/release/millrace-bench mcc

# REPEAT=5 for medians, RESUME=1 to go on with a result file, OPTIONS="--cc bbr ..." for others of
# `millrace-bench connections`.
bench-connections: build ## Cost of a byte by number of connections, 1 to 1,000 (8 minutes a pass); target/bench/connections.json
	$(AS_ROOT) target/release/millrace-bench connections --repeat $(or $(REPEAT),1) $(if $(RESUME),--resume) $(OPTIONS)

clean: ## Remove what was built, and what crashed runs left
	if [ -x $(LAB) ]; then $(AS_ROOT) $(LAB) clean; fi
	rm -rf target third_party/run-make-setup-first
	rm -rf player/dist player/node_modules lab/web/dist lab/web/node_modules
