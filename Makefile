# `make` lists the targets. Each says how long it may take on two cores; .ci/leg holds CI to that.

BIN      := .bin
PACKAGES := ./... ./testdata/
# `./...` leaves out folders called testdata; this one has a package in it.

SKIPCHECK   := $(BIN)/skipcheck
STATICCHECK := $(BIN)/staticcheck
BENCHSTAT   := $(BIN)/benchstat

BENCH     ?= .
BENCHTIME ?= 1s
COUNT     ?= 1
FUZZTIME  ?= 10s

.DEFAULT_GOAL := help
.PHONY: help test cases model lint bench fuzz demo ci prepare bench-once

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: $(SKIPCHECK) ## all tests with the race detector; installs redis-server where it may (5 minutes)
	@.ci/install-redis
	$(SKIPCHECK) -- -race -count=1 -parallel 4 -timeout 5m $(PACKAGES)
	$(SKIPCHECK) -dir internal/tools -- -count=1 -timeout 2m ./...

cases: $(SKIPCHECK) ## the cases of docs/cases.md with their full numbers (30 minutes)
	@.ci/install-redis
	LEASEQ_CASES=full $(SKIPCHECK) -each -- -count=1 -timeout 30m ./internal/cases/

model: ## the searches of internal/model with their large bounds (20 minutes, 8 GB)
	LEASEQ_MODEL=full go test -count=1 -v -timeout 30m ./internal/model/

lint: $(STATICCHECK) ## gofmt, go vet and staticcheck for three systems, the rules of the house (8 minutes)
	@.ci/lint

bench: $(BENCHSTAT) ## benchmarks: BENCH=regexp BENCHTIME=1s COUNT=1; compare two outputs with .bin/benchstat (10 minutes)
	@.ci/install-redis >&2
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -count $(COUNT) -timeout 60m $(PACKAGES)

fuzz: ## each fuzz target for FUZZTIME=10s (5 minutes)
	@FUZZTIME=$(FUZZTIME) .ci/fuzz

demo: ## workers are killed and frozen, and no job is lost; needs nothing but Go (1 minute)
	go run ./cmd/reaper demo

ci: ## what .ci/run runs: all legs below, one after the other (42 minutes)
	.ci/leg 12 $(MAKE) --no-print-directory prepare
	.ci/leg 8 $(MAKE) --no-print-directory lint
	.ci/leg 8 $(MAKE) --no-print-directory test
	.ci/leg 3 $(MAKE) --no-print-directory demo
	.ci/leg 5 $(MAKE) --no-print-directory fuzz
	.ci/leg 6 $(MAKE) --no-print-directory bench-once

# CI's own: everything that is fetched or built before the first test, so that the tests' budget is theirs.
prepare: $(SKIPCHECK) $(STATICCHECK)
	@.ci/install-redis
	go mod download
	go build ./...
	go test -race -run '^$$' $(PACKAGES) >/dev/null

# CI's own: each benchmark once, to see that it still runs.
bench-once:
	@$(MAKE) --no-print-directory bench BENCHTIME=1x

$(SKIPCHECK): internal/tools/go.mod $(wildcard internal/tools/cmd/skipcheck/*.go)
	go -C internal/tools build -o ../../$@ ./cmd/skipcheck

$(STATICCHECK): internal/tools/go.mod
	go -C internal/tools build -o ../../$@ honnef.co/go/tools/cmd/staticcheck

$(BENCHSTAT): internal/tools/go.mod
	go -C internal/tools build -o ../../$@ golang.org/x/perf/cmd/benchstat
