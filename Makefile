# What there is to do here. `make help` lists it; CONTRIBUTING.md says when to use what.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# How often `make parity-record` plays each scenario.
TIMES ?= 2
# Two jobs: what builds here is sized for two cores.
CARGO ?= cargo
export CARGO_BUILD_JOBS ?= 2
# Integration tests share control planes; more at a time than this only wait for each other.
export RUST_TEST_THREADS ?= 4

.PHONY: help run test test-all lint audit unit soak simulate clients integration differ parity-record metrics-reference bench fuzz image dist oracle controlplane docs dashboard clean

help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Start a local cluster with Coxswain as its controller manager, and say what to try
	@scripts/run.sh

test: lint unit clients integration ## Everything that must pass

test-all: export COXSWAIN_FULL = 1
test-all: export PROPTEST_CASES ?= 4096
test-all: test soak ## The same in full depth: more cases of every property, the long tests at full length, and the audit
	@scripts/audit.sh || [ $$? = 3 ] # What cannot be looked up here is said, and fails nobody.

lint: ## Check formatting, spelling, prose, lints and licenses
	@scripts/lint.sh

audit: ## Look up what all of this depends on in databases of advisories; fails if any cannot be reached
	@scripts/audit.sh

unit: oracle ## Unit and property tests, and the simulation with seeds that are always the same; needs no cluster
	$(CARGO) test --workspace --lib --bins --test simulation --test memory
	cd tests/controlplane && go test ./...
	cd tests/oracle && go test ./...
	cd tests/oracle && go vet -tags standard ./...

soak: export NAMES ?= 1000000
soak: ## Check that a million names of objects in the simulated cluster do not grow the manager's memory (NAMES=…, ONLY=SORT)
	@$(CARGO) test --profile simulate --test simulation -- --ignored --exact --nocapture churn::soak

simulate: ## A minute of the simulated cluster with new seeds (SECONDS=…, FAULTS=0), or one seed again with its trace (SEED=…)
	@$(CARGO) test --profile simulate --test simulation -- --ignored --exact --nocapture soak::simulate

clients: ## The admin clients in Go, Python and TypeScript: generated anew without a difference, linted, unit-tested
	@scripts/clients.sh check

integration: controlplane ## Tests on a real API server, and where their time went
	@scripts/integration.sh
	$(CARGO) test --test differential

differ: controlplane ## Compare with the Go manager by new seeds for a minute (SECONDS=…), by one seed (SEED=…) or by a file of operations (LIST=…)
	@$(CARGO) test --test differential -- --ignored --exact --nocapture differ

parity-record: controlplane ## Record anew what the Go manager makes of tests/parity (PARITY=TEXT: of those scenarios)
	COXSWAIN_PARITY_RECORD=$(TIMES) COXSWAIN_PARITY=$(PARITY) $(CARGO) test --test integration under_the_go_manager

metrics-reference: controlplane ## Record anew which metrics the Go manager shows
	COXSWAIN_PARITY_RECORD=1 $(CARGO) test --test integration the_reference_knows_all_that_the_original_shows

bench: controlplane ## Side-by-side figures against the Go manager, and micro-benchmarks
	@scripts/bench.sh

fuzz: ## Fuzz what comes from others: requests, certificates, expressions, watches, objects, kubeconfigs, flags; a minute each
	@for target in admin_requests certificate_requests cel_expressions watch_frames objects kubeconfigs flags; do \
		scripts/fuzz.sh $$target $(SECONDS) || exit 1; done

image: ## Make the image, an OCI layout in target/image, without a container engine (COXSWAIN=a program that is built)
	@scripts/image.sh

dist: ## Make what is released, in target/dist-VERSION: program, plugin, clients, chart, manifests, checksums
	@scripts/dist.sh

oracle: ## Build the programs that answer how Go reads texts (cached outside of the checkout; needs Go modules the first time)
	@tests/oracle/build.sh standard >/dev/null
	@tests/oracle/build.sh >/dev/null

controlplane: ## Build the control plane that tests run against (cached outside of the checkout)
	@tests/controlplane/build.sh >/dev/null

docs: ## Regenerate the generated parts of the manual, and build it as a site in target/book
	COXSWAIN_REGENERATE=1 $(CARGO) test --lib docs::
	@scripts/book.sh

dashboard: controlplane ## Draw the picture of the dashboard anew, from a run of its test
	COXSWAIN_REGENERATE=1 $(CARGO) test --test integration prometheus::

clean: ## Remove what was built in this checkout
	$(CARGO) clean
