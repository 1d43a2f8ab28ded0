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
.PHONY: help test cases durability model chaos rows soak mutants lint bench bench-peers bench-scale fuzz examples demo ci prepare bench-once

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Else each program with the race detector sleeps for a second at its end, lest another thread be about to find a race: no
# thread of ours is left at the end of a test program, and reports that were begun are waited for anyhow.
test: $(SKIPCHECK) ## all tests with the race detector; installs redis-server where it may (5 minutes)
	@.ci/install-redis
	GORACE=atexit_sleep_ms=0 LEASEQ_CHAOS_SLACK=1s $(SKIPCHECK) -- -race -count=1 -parallel 4 -timeout 5m $(PACKAGES)
	$(SKIPCHECK) -dir internal/tools -- -count=1 -timeout 2m ./...

cases: $(SKIPCHECK) ## the cases of docs/cases.md with their full numbers (30 minutes)
	@.ci/install-redis
	LEASEQ_CASES=full $(SKIPCHECK) -each -- -count=1 -timeout 30m ./internal/cases/

durability: ## Redis is killed 230 times and loses its power 170 times; prints what that takes, by appendfsync (15 minutes)
	@.ci/install-redis
	LEASEQ_CASES=full go test -count=1 -v -parallel 4 -timeout 15m ./internal/durability/

model: ## the searches of internal/model with their large bounds (20 minutes, 8 GB)
	LEASEQ_MODEL=full go test -count=1 -v -timeout 30m ./internal/model/

chaos: ## a storm with all faults and the demands of a release: CHAOS=10m (CHAOS + 3 minutes)
	@.ci/install-redis
	LEASEQ_CHAOS_DURATION=$(or $(CHAOS),10m) go test -count=1 -v -timeout 0 -run '^TestAStorm$$' ./chaos/

rows: $(SKIPCHECK) ## each row of the table of faults as a storm of its own (3 minutes)
	@.ci/install-redis
	LEASEQ_CASES=full $(SKIPCHECK) -- -count=1 -parallel 2 -timeout 20m -run '^TestRow' ./chaos/

soak: ## the same for hours: CHAOS=3h
	@$(MAKE) --no-print-directory chaos CHAOS=$(or $(CHAOS),3h)

mutants: ## one safeguard after the other is dropped, and the suite must notice: the table of chaos/README.md (10 minutes)
	@.ci/install-redis
	LEASEQ_MUTANTS=full go test -count=1 -v -timeout 30m -run '^TestEveryMutantIsCaught$$' ./internal/mutation/

lint: $(STATICCHECK) ## gofmt, go vet and staticcheck for three systems, the rules of the house (11 minutes)
	@.ci/lint

bench: $(BENCHSTAT) ## benchmarks: BENCH=regexp BENCHTIME=1s COUNT=1; compare two outputs with .bin/benchstat (10 minutes)
	@.ci/install-redis >&2
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -count $(COUNT) -timeout 60m $(PACKAGES)

bench-peers: ## leaseq, asynq and a bare pop side by side, as bench/README.md tells: ARGS=-aof for an append-only file (20 minutes)
	@.ci/install-redis >&2
	@go -C bench run . $(ARGS)

bench-scale: ## what calls cost while a queue grows to 10 million jobs; writes docs/plots and the costs of reaper capacity: ARGS=-max=1000000 (15 minutes, 6 GB)
	@.ci/install-redis >&2
	@go -C bench run ./scale -out ../docs/plots -costs ../cmd/reaper/internal/capacity/costs.json $(ARGS)

fuzz: ## each fuzz target for FUZZTIME=10s (8 minutes)
	@FUZZTIME=$(FUZZTIME) .ci/fuzz

examples: $(SKIPCHECK) ## examples/ and idempotency/sqlguard, on a PostgreSQL of their own; installs it where it may (2 minutes)
	@.ci/install-redis
	@.ci/install-postgres
	$(SKIPCHECK) -dir examples -- -race -count=1 -timeout 5m ./...

demo: ## workers are killed and frozen, and no job is lost; needs nothing but Go (1 minute)
	go run ./cmd/reaper demo

ci: ## what .ci/run runs: all legs below, one after the other (44 minutes)
	.ci/leg 8 $(MAKE) --no-print-directory prepare
	.ci/leg 11 $(MAKE) --no-print-directory lint
	.ci/leg 8 $(MAKE) --no-print-directory test
	.ci/leg 1 $(MAKE) --no-print-directory demo
	.ci/leg 3 $(MAKE) --no-print-directory rows
	.ci/leg 3 $(MAKE) --no-print-directory chaos CHAOS=2m
	.ci/leg 2 $(MAKE) --no-print-directory examples
	.ci/leg 6 $(MAKE) --no-print-directory fuzz FUZZTIME=3s
	.ci/leg 2 $(MAKE) --no-print-directory bench-once

# CI's own: everything that is fetched or built before the first test, so that the tests' budget is theirs.
prepare: $(SKIPCHECK) $(STATICCHECK) $(BENCHSTAT)
	@.ci/install-redis
	@.ci/install-postgres
	go mod download
	go -C examples mod download
	go -C bench mod download
	go build ./...
	go test -race -run '^$$' $(PACKAGES) >/dev/null
	go -C examples test -race -run '^$$' ./... >/dev/null

# CI's own: each benchmark once, to see that it still runs.
bench-once:
	@$(MAKE) --no-print-directory bench BENCHTIME=1x

$(SKIPCHECK): internal/tools/go.mod $(wildcard internal/tools/cmd/skipcheck/*.go)
	go -C internal/tools build -o ../../$@ ./cmd/skipcheck

$(STATICCHECK): internal/tools/go.mod
	go -C internal/tools build -o ../../$@ honnef.co/go/tools/cmd/staticcheck

$(BENCHSTAT): internal/tools/go.mod
	go -C internal/tools build -o ../../$@ golang.org/x/perf/cmd/benchstat
