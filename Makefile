# `make help` lists the targets. Everything works with GNU make 3.81 and bash 3.2.

# Test the Go that is installed, never one fetched behind our back.
export GOTOOLCHAIN = local

# One package's limit in `make test`, and the turns and limit of `make stress`.
TEST_TIMEOUT ?= 15m
STRESS_COUNT ?= 20
STRESS_TIMEOUT ?= 60m
FUZZ_TIME ?= 10s
# More flags for go test: make test TESTFLAGS='-run TestUnlock -v'.
TESTFLAGS ?=

# The race detector needs cgo, except on macOS.
CGO := $(if $(filter Darwin,$(shell uname -s)),,CGO_ENABLED=1)
GO_TEST = env $(CGO) go test -race -shuffle=on
LINT = "$(CURDIR)/scripts/golangci-lint"

.PHONY: help test scenarios check lint fmt fmt-check tidy tidy-check bench cover fuzz stress setup clean
.NOTPARALLEL:
.DEFAULT_GOAL := help

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: setup ## Install what is missing and run every test of every module, with the race detector
	@scripts/versions
	@scripts/each-module $(GO_TEST) -timeout=$(TEST_TIMEOUT) $(TESTFLAGS) ./...

check: ## The contributor's loop: format, vet, lint and the short tests (no redis-server needed)
	@scripts/setup cc
	@$(MAKE) --no-print-directory fmt-check
	@scripts/each-module go vet ./...
	@$(MAKE) --no-print-directory lint
	@scripts/each-module $(GO_TEST) -short -timeout=2m $(TESTFLAGS) ./...

lint: ## Run golangci-lint at its pinned version in every module
	@scripts/each-module $(LINT) run ./...

fmt: ## Format all Go files (gofumpt, gci)
	@$(LINT) fmt ./...

fmt-check: ## Show what `make fmt` would change; fail if that is anything
	@$(LINT) fmt --diff ./...

tidy: ## go mod tidy in every module
	@scripts/each-module go mod tidy

tidy-check: ## Show what `make tidy` would change; fail if that is anything
	@scripts/each-module go mod tidy -diff

scenarios: setup ## Play out the faults met in the field (docs/faults.md), about two minutes
	@$(GO_TEST) -tags scenarios -timeout=$(TEST_TIMEOUT) $(TESTFLAGS) ./internal/scenarios

bench: ## Measure polling against pub/sub on this machine
	go -C bench run .

cover: setup ## Test the main module with coverage of all its packages; writes coverage.out
	@$(GO_TEST) -timeout=$(TEST_TIMEOUT) -coverpkg=./... -coverprofile=coverage.out $(TESTFLAGS) ./...
	@go tool cover -func=coverage.out | tail -n 1

fuzz: ## Run every fuzz target of the main module for FUZZ_TIME (10s)
	@scripts/fuzz $(FUZZ_TIME)

stress: setup ## Run the main module's tests STRESS_COUNT (20) times, shuffled, with the race detector
	@scripts/versions
	@$(GO_TEST) -count=$(STRESS_COUNT) -timeout=$(STRESS_TIMEOUT) $(TESTFLAGS) ./...

setup: ## Install redis-server and a C compiler if missing (Debian, root), or say how
	@scripts/setup redis cc

clean: ## Remove what these targets made: coverage.out and the tools in .tools
	@rm -rf coverage.out .tools
