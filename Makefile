# What people run, and CI too. `make demo` and `make test` set up what they need by themselves.

LAB := target/release/millrace-lab
# The parts that make namespaces need root.
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo --preserve-env=PATH,HOME,CI)

.PHONY: help setup build programs pages demo figures lab lab-full qoe rules keep test test-full check advisories unit bench clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 10

setup: ## Install what is missing: Debian packages, quiche's patched source, npm packages
	tests/scripts/setup.sh

# The pages are built beside the programs: cargo uses one processor only much of the time.
build: setup ## Build everything
	$(MAKE) --no-print-directory pages & pages=$$!; $(MAKE) --no-print-directory programs && wait $$pages

programs: setup
	cargo build --release --workspace --all-targets

pages: setup
	(cd player && npm run build) & player=$$!; (cd tests/lab/report && npm run build) && wait $$player

demo: setup ## Play a real video through the tunnel and over plain TCP; target/demo/report.html
	cargo build --release --workspace --bins
	cd player && npm run build
	$(AS_ROOT) $(LAB) demo

# ONLY=TEXT for some of them, QUICK=1 for a short look that proves nothing.
figures: setup ## The papers' figures in the simulator, claims judged; target/lab/report.html
	cargo build --release -p millrace-lab
	cd tests/lab/report && npm run build
	$(LAB) sim tests/lab/scenarios $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick); \
	judged=$$?; [ $$judged = 0 ] || [ $$judged = 2 ] || exit $$judged; \
	$(LAB) report target/lab/results --out target/lab/report.html \
		--table target/lab/claims.md && exit $$judged

# What 15 minutes show; lab-full has everything, beside the simulator where that has it too.
WIRE := tests/lab/scenarios/wire
lab: build ## Scenarios with real packets (15 minutes, as root); target/lab/lab.html
	$(AS_ROOT) $(LAB) emu $(WIRE) --only wire-loss --only wire-up --only wire-shared \
		--only wire-rtts --only wire-peer --only wire-many; \
	judged=$$?; [ $$judged = 0 ] || [ $$judged = 2 ] || exit $$judged; \
	$(LAB) report target/lab/emulated --out target/lab/lab.html --title "Millrace on real packets" \
		--table target/lab/lab.md && exit $$judged

lab-full: build ## All scenarios with real packets, and the simulator beside them (about 1.5 hours); target/lab/lab-full.html
	$(AS_ROOT) $(LAB) emu $(WIRE) tests/lab/scenarios/both; \
	judged=$$?; [ $$judged = 0 ] || [ $$judged = 2 ] || exit $$judged; \
	$(LAB) sim $(WIRE) tests/lab/scenarios/both --out target/lab/simulated; \
	simulated=$$?; [ $$simulated = 0 ] || [ $$simulated = 2 ] || exit $$simulated; \
	$(LAB) report sim=target/lab/simulated emu=target/lab/emulated \
		--out target/lab/lab-full.html --title "Millrace on real packets" && exit $$judged

qoe: build ## Players in browsers and of streams, as root (hours; ONLY=iris-fig15 for one); target/lab/qoe.html
	tests/scripts/live555.sh
	$(AS_ROOT) $(LAB) emu tests/lab/scenarios/qoe $(if $(ONLY),--only $(ONLY)) --out target/lab/qoe; \
	judged=$$?; [ $$judged = 0 ] || [ $$judged = 2 ] || exit $$judged; \
	$(LAB) report target/lab/qoe --out target/lab/qoe.html --title "What viewers saw" && exit $$judged

# A third of the recorded links, drawn by a seed, and the paths from 2000 on are not learnt from.
rules: setup ## Learn MCC's rules anew in the simulator, and judge them on paths that were held out (20 minutes)
	cargo build --release -p millrace-lab
	tests/scripts/learner-venv.sh
	tests/scripts/learn-rules.sh

keep: ## Keep results in docs/results: make keep FROM=target/lab/qoe
	$(LAB) keep --runs $(FROM)

test: setup ## Lint, unit, end to end, player, soak, fuzz; some of it as root
	tests/scripts/test.sh

test-full: setup ## The same, with long soaks, sweeps and repeated measurements (hours)
	tests/scripts/test.sh full

check: setup ## Format, lints, licences, sources and advisories of dependencies, pinned images, strict TypeScript
	tests/scripts/check.sh

advisories: setup ## Known vulnerabilities in dependencies: Rust, npm, Python, Go; fails where the data can't be had
	tests/scripts/advisories.sh all

unit: setup ## The tests that need neither root nor the network
	cargo test --release --workspace
	nginx-conf/lua/test.sh

bench: build ## Throughput and CPU beside plain TCP and nginx, cost of each algorithm, speed of the simulator; target/bench/
	cargo bench --package millrace-replay
	cargo bench --package millrace-mcc
	target/release/millrace-bench controllers
	target/release/millrace-bench simulator
	$(AS_ROOT) target/release/millrace-bench data-path
	$(AS_ROOT) target/release/millrace-bench mcc

clean: ## Remove what was built, and what crashed runs left
	if [ -x $(LAB) ]; then $(AS_ROOT) $(LAB) clean; fi
	rm -rf target cc/run-make-setup-first
	rm -rf player/dist player/node_modules tests/lab/report/dist tests/lab/report/node_modules
