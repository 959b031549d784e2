# Every target is meant to be read: `make` alone lists them.
.DEFAULT_GOAL := help
.PHONY: help cluster-up cluster-down test

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

cluster-up: ## start a real control plane with simulated nodes, named dev, and print where everything is
	@e2e/require.sh go flock
	@e2e/cluster/up.sh dev

cluster-down: ## stop it
	@e2e/cluster/down.sh dev

test: ## formatting, clippy, unit and property tests, then e2e on a real control plane
	@e2e/require.sh cargo cc go flock
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	e2e/cluster/build.sh >/dev/null
	cargo test --workspace --locked
