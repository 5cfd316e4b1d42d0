# The commands for developers and CI. `make help` lists them.
.DEFAULT_GOAL := help
CARGO ?= cargo
# For pipefail.
SHELL := /bin/bash

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Check for Rust and a C compiler, and install what is missing
	@scripts/setup

# rustup's default place, for shells that were open before scripts/setup installed it.
export PATH := $(PATH):$(if $(CARGO_HOME),$(CARGO_HOME),$(HOME)/.cargo)/bin

.PHONY: run
run: setup ## Run the whole system in one process, with local nodes
	$(CARGO) run --package mco -- up

.PHONY: test
test: setup ## Run all tests that need only Rust
	$(CARGO) test --workspace

.PHONY: e2e
e2e: ## Run the suites against real components, which it installs (as root, on Debian)
	e2e/run
	e2e/alerts/run
	e2e/story/run
	e2e/install/run
	e2e/switch/run
	e2e/rollout/run
	e2e/gates/run
	e2e/cluster/run --profile full
	e2e/cluster/run --profile ha
	e2e/cluster/run --profile guard
	e2e/cluster/run --profile adoption
	e2e/image/run
	e2e/firstboot/run
	e2e/node/run
	e2e/console/run
	e2e/build/run
	e2e/package/run

.PHONY: lint
lint: ## Check formatting, lints, licences and duplicate dependencies
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	scripts/install-cargo-tool cargo-deny
	$(CARGO) deny --log-level error check bans licenses sources
	scripts/build-book --check

.PHONY: book
book: setup ## Build the documentation as a site, and check its links
	scripts/build-book

.PHONY: release
release: setup ## Build everything that a release publishes into target/dist (see scripts/release)
	scripts/release

.PHONY: bench
bench: ## Measure speed, memory, requests and size, and rewrite docs/performance.md
	$(CARGO) bench --package mco-core
	$(CARGO) bench --package mco-apiserver --bench load
	$(CARGO) bench --package mco-controllers --bench rollout
	$(CARGO) build --release --package mco --package mco-simulator --bins --example fleet
	mkdir -p target/bench
	e2e/bench/run >target/bench/rollout.json
	set -o pipefail; for what in render server daemon size; do \
		scripts/bench-$$what | tee target/bench/bench-$$what.txt || exit 1; done
	scripts/bench-report target/bench

.PHONY: proof
proof: ## Power failures, kills, simulated fleets, suites of others, an hour of incidents (docs/proof.md)
	MCO_POWER=all $(CARGO) test --release --package mco-daemon --test power -- --nocapture
	MCO_POWER=all $(CARGO) test --release --package mco-apiserver --lib store::power_tests -- --nocapture
	MCO_CRASH_POINTS=all MCO_CRASH_RANDOM=2000 $(CARGO) test --release --package mco-daemon --test crash -- --nocapture
	$(CARGO) run --release --package mco-simulation -- --seed 0 --count 10000
	e2e/powercut/run --cuts 50
	e2e/others/run
	$(CARGO) build --release --package mco
	e2e/soak/run --minutes 60

.PHONY: fuzz
fuzz: ## Fuzz the parsers and transforms; SECONDS_EACH=60 by default
	scripts/fuzz

.PHONY: attack
attack: ## Play the attacks of the security reviews against a release build
	$(CARGO) build --release --package mco
	e2e/attack/run
