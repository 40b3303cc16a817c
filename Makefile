# `make help` lists the targets; CONTRIBUTING.md describes them.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Number of times that `make parity-record` plays each scenario.
TIMES ?= 2
# The builds are sized for two cores.
CARGO ?= cargo
export CARGO_BUILD_JOBS ?= 2
# Integration tests share control planes; more threads than this only wait for each other.
export RUST_TEST_THREADS ?= 4

.PHONY: help run test test-all lint audit unit soak simulate strings clients integration differ parity-record metrics-reference bench fuzz image dist oracle controlplane docs dashboard clean

help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Start a local cluster with Coxswain as its controller manager, and print commands to try
	@scripts/run.sh

test: lint unit clients integration ## Run everything that must pass

test-all: export COXSWAIN_FULL = 1
test-all: export PROPTEST_CASES ?= 4096
test-all: test soak ## Run `make test` in full depth: more cases of every property, long tests at full length, and the audit
	@scripts/audit.sh || [ $$? = 3 ] # An unreachable database is printed and does not fail the run.

lint: ## Check formatting, spelling, prose, lints and licenses
	@scripts/lint.sh

audit: ## Look up all dependencies in the advisory databases; fails if a database cannot be reached
	@scripts/audit.sh

unit: oracle ## Run unit and property tests, and the simulation with fixed seeds; needs no cluster
	$(CARGO) test --workspace --lib --bins --test simulation --test memory
	cd tests/controlplane && go test ./...
	cd tests/oracle && go test ./...
	cd tests/oracle && go vet -tags standard ./...

soak: export NAMES ?= 1000000
soak: ## Check that the manager's memory does not grow over a million object names in the simulated cluster (NAMES=…, ONLY=TEXT for kinds whose name contains TEXT)
	@$(CARGO) test --profile simulate --test simulation -- --ignored --exact --nocapture churn::soak

simulate: ## Simulate clusters with new seeds for a minute (SECONDS=…, FAULTS=0), or repeat one seed with its trace (SEED=…)
	@$(CARGO) test --profile simulate --test simulation -- --ignored --exact --nocapture soak::simulate

strings: ## List all strings that users read, by kind, in target/strings.md, for a review of their wording
	@scripts/strings.sh

clients: ## Check the admin clients in Go, Python and TypeScript: generated code, lints, unit tests
	@scripts/clients.sh check

integration: controlplane ## Run the tests on a real API server, and print the slowest ones
	@scripts/integration.sh
	$(CARGO) test --test differential || { echo "the differential test failed; running it again" >&2; $(CARGO) test --test differential; }

differ: controlplane ## Compare Coxswain with kube-controller-manager: new seeds for a minute (SECONDS=…), one seed (SEED=…) or a file of operations (LIST=…)
	@$(CARGO) test --test differential -- --ignored --exact --nocapture differ

parity-record: controlplane ## Record the outcomes of tests/parity under kube-controller-manager (PARITY=TEXT selects scenarios)
	COXSWAIN_PARITY_RECORD=$(TIMES) COXSWAIN_PARITY=$(PARITY) $(CARGO) test --test integration under_the_go_manager

metrics-reference: controlplane ## Record the metrics of kube-controller-manager
	COXSWAIN_PARITY_RECORD=1 $(CARGO) test --test integration the_reference_knows_all_that_the_original_shows

bench: controlplane ## Measure Coxswain and kube-controller-manager side by side, and run the micro-benchmarks
	@scripts/bench.sh

fuzz: ## Fuzz all parsers of input: requests, certificates, expressions, watches, objects, kubeconfigs, flags; a minute each
	@for target in admin_requests certificate_requests cel_expressions watch_frames objects kubeconfigs flags; do \
		scripts/fuzz.sh $$target $(SECONDS) || exit 1; done

image: ## Build the image as an OCI layout in target/image, without a container engine (COXSWAIN=PROGRAM)
	@scripts/image.sh

dist: ## Build the release in target/dist-VERSION: program, plugin, clients, chart, manifests, checksums
	@scripts/dist.sh

oracle: ## Build the programs that parse texts with Go's libraries, for tests (cached outside of the checkout; needs Go modules)
	@tests/oracle/build.sh standard >/dev/null
	@tests/oracle/build.sh >/dev/null

controlplane: ## Build the control plane that tests run against (cached outside of the checkout)
	@tests/controlplane/build.sh >/dev/null

docs: ## Regenerate the generated parts of the manual, and build the site in target/book
	COXSWAIN_REGENERATE=1 $(CARGO) test --lib docs::
	@scripts/book.sh

dashboard: controlplane ## Render the image of the dashboard from a run of the dashboard test
	COXSWAIN_REGENERATE=1 $(CARGO) test --test integration prometheus::

clean: ## Remove the build output of this checkout
	$(CARGO) clean
