# Two commands matter: "make run" and "make test". "make" alone lists the rest.

.PHONY: help run build test test-all bench modes faults soak lint fmt gen clean
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo 'For example:'
	@echo '  make run ARGS="--http 127.0.0.1:9000"'
	@echo '  make test MODULES=.                    only the root module'
	@echo '  make test-all FUZZTIME=5m'

run: ## start the daemon; flags go in ARGS
	@go build -o .bin/weir ./cmd/weir
	@exec .bin/weir serve $(ARGS)

build: ## build the daemon into .bin/weir
	go build -o .bin/weir ./cmd/weir

test: ## install what the tests need, then lint and test every module
	@scripts/test.sh test

test-all: ## the same with long property runs and fuzzing
	@scripts/test.sh all

bench: ## compare weir with its peers, side by side; flags go in ARGS
	go run -C bench ./cmd/compare $(ARGS)

modes: ## measure exact, leased and async with 1 to 4 nodes; writes docs/modes.md
	go run -C bench ./cmd/modes $(ARGS)

faults: ## break Redis and the network under load; writes docs/faults.md
	WEIR_FAULTS=long go test -C faults -count=1 -timeout 30m -v . $(ARGS)

SOAK ?= 30m
soak: ## run daemons under a mixed load for SOAK (30m); writes into docs/operations.md
	WEIR_SOAK=$(SOAK) go test -C faults -count=1 -timeout 0 -v -run '^TestSoak$$' . $(ARGS)

lint: ## format, generated code, vet and staticcheck only
	@scripts/test.sh lint

fmt: ## format every Go file
	@scripts/setup.sh
	@scripts/format.sh write

gen: ## lint proto/ and generate gen/ from it
	@scripts/gen.sh write

clean: ## remove what was built
	rm -rf .bin tools/node_modules
