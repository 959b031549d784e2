# `make` without a target lists all targets.
.DEFAULT_GOAL := help
PREFIX ?= $(HOME)/.local
.PHONY: help demo demo-down install-plugin crds cluster-up cluster-down test test-units test-end-to-end test-real-kubelet test-beside doc lint deny advisories image-check test-kubelet compatibility random campaign guard-campaign soak bench archives release release-check

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

demo: ## a real control plane, the operator, and the documents' walkthroughs with kubectl
	@e2e/require.sh cargo cc go flock curl
	@e2e/demo/start.sh

demo-down: ## stop and remove what demo started
	@e2e/demo/stop.sh

cluster-up: ## start a real control plane with simulated nodes, named dev, and print where everything is
	@e2e/require.sh go flock
	@e2e/cluster/up.sh dev

cluster-down: ## stop the control plane named dev
	@e2e/cluster/down.sh dev

install-plugin: ## build `kubectl game` and put it, with its completion, into PREFIX/bin (~/.local/bin)
	@e2e/require.sh cargo cc
	cargo build --release --locked --package kubectl-game
	install -D -t $(PREFIX)/bin target/release/kubectl-game kubectl-game/kubectl_complete-game

crds: ## regenerate crds/ and the chart's CRDs from the types in core/src/api
	WRITE_CRDS=1 cargo test --quiet --package gamekeeper-core --lib the_crd_files_match_the_types

test: ## formatting, lints, documentation, unit and property tests, then e2e on a real control plane
	@e2e/require.sh cargo cc go flock script faketime
	cargo fmt --all --check
	@$(MAKE) --no-print-directory lint
	cargo clippy --workspace --all-targets --locked -- -D warnings
	@$(MAKE) --no-print-directory doc
	e2e/alerts/check.sh
	e2e/cluster/build.sh >/dev/null
	e2e/compatibility/build.sh 1.30 >/dev/null
	e2e/compatibility/build.sh helm-4 >/dev/null
	e2e/argo-cd/build.sh >/dev/null
	if [ -z "$$(e2e/node/missing.sh)" ]; then e2e/node/build.sh >/dev/null; fi
	cargo test --workspace --locked --no-run
	@$(MAKE) --no-print-directory test-units
	@$(MAKE) --no-print-directory --jobs=3 test-end-to-end test-real-kubelet test-beside
	e2e/image/check.sh

test-units:
	cargo test --workspace --locked --lib --bins -- $(MODEL:%=--skip %)
	cargo test --workspace --locked --exclude e2e --test '*'
	cargo test --workspace --locked --doc

test-end-to-end:
	cargo test --workspace --locked --test main

test-real-kubelet:
	cargo test --workspace --locked --test real-node --test real-lifecycle

# The end-to-end tests mostly wait. The model checker, which needs processors and nothing else, and the tests on the
# oldest version of Kubernetes take what they leave.
MODEL = scopes:: proof:: random:: lifecycle::
test-beside:
	nice cargo test --workspace --locked --lib -- $(MODEL)
	E2E_KUBERNETES=1.30 E2E_AREAS=install,canary,guard cargo test --workspace --locked --test main -- --test-threads=3

doc: ## build the code's documentation, private items included, in target/doc; a warning is an error
	@e2e/require.sh cargo cc
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --locked

lint: deny ## check scripts, workflows, spelling, dependencies, and the page of kubectl game view (with npm)
	@e2e/require.sh shellcheck
	checks/scripts.sh
	checks/page.sh
	$$(checks/tools.sh)/actionlint
	$$(checks/tools.sh)/typos

deny: ## check the dependencies' licenses, versions and sources (deny.toml)
	@e2e/require.sh cargo cc go flock python3
	$$(checks/tools.sh)/cargo-deny --workspace --locked check bans licenses sources

advisories: ## check the dependencies against RustSec's database (fetched from GitHub)
	@e2e/require.sh cargo cc go flock python3
	$$(checks/tools.sh)/cargo-deny --workspace --locked check advisories

image-check: ## check what the Dockerfile builds, as far as this machine can: labels, files, exit on SIGTERM
	@e2e/require.sh cargo cc
	cargo build --locked --package gamekeeper --bin gamekeeper
	e2e/image/check.sh

test-kubelet: ## the tests on a node with a real kubelet, containerd and runc, as far as this machine can run it (root, cgroup v1)
	@e2e/require.sh cargo cc go flock
	@e2e/cluster/build.sh >/dev/null
	cargo test --locked --package e2e --test real-node --test real-lifecycle

compatibility: ## the end-to-end tests of e2e/compatibility/areas on Kubernetes 1.30 to 1.37, and with Helm 3.14 and 4; prints a table; takes hours; VERSIONS="1.30 helm-4" selects some
	@e2e/require.sh cargo cc go flock script
	@e2e/cluster/build.sh >/dev/null
	@e2e/compatibility/run.sh $(VERSIONS)

COUNT ?= 300
CASES ?= 2000
SEED ?= 0
random: ## run the random tests with CASES (2000) cases from SEED (0); `make test` uses a fixed seed
	@e2e/require.sh cargo cc
	PROPTEST_RNG_SEED=$(SEED) PROPTEST_CASES=$(CASES) cargo test --workspace --exclude e2e --locked

campaign: ## play COUNT (300) histories with faults, kills and changes by users, starting at SEED (0), and print their figures
	@e2e/require.sh cargo cc go flock faketime
	@e2e/cluster/build.sh >/dev/null
	cargo build --locked --package gamekeeper --package e2e --bins
	target/debug/campaign $(COUNT) $(SEED)

guard-campaign: COUNT = 100
guard-campaign: ## play COUNT (100) histories in which other clients end matches, with and without guarded pods, starting at SEED (0), and print the table; RESUME=1 continues
	@e2e/require.sh cargo cc go flock
	@e2e/cluster/build.sh >/dev/null
	cargo build --locked --package gamekeeper --package kubectl-game --package e2e --bins
	RESUME=$(RESUME) target/debug/guard-campaign $(COUNT) $(SEED)

HOURS ?= 2
soak: ## change 2,000 pods for HOURS (2), with changes of the leader, and print whether memory, descriptors, threads or series grow
	@e2e/require.sh cargo cc go flock
	@e2e/cluster/build.sh >/dev/null
	cargo build --release --locked --package gamekeeper --package e2e --bins
	target/release/soak $(HOURS)

bench: ## measure plans of 10,000 pods; 1,000 pods of the operator, native controllers and a bare client; 10,000 HookRuns; guarded pods; takeovers; sidecars; PART=scale: 10,000 pods
	@e2e/require.sh cargo cc go flock
	@e2e/cluster/build.sh >/dev/null
	cargo build --release --locked --package gamekeeper --package kubectl-game --package e2e --bins
	cargo bench --locked --package gamekeeper-core --bench plan
	target/release/bench $(PART)

VERSION ?= $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
archives: ## build the release archives and the image for this architecture, in target/archives
	@e2e/require.sh cargo cc go flock jq buildah
	release/archives.sh $(VERSION)

release: archives ## make a release of VERSION (that of Cargo.toml) in target/release-VERSION (release/README.md)
	@e2e/require.sh gpg
	release/make.sh $(VERSION)

release-check: release ## make a release and check it with the programs of its users; plays the first hour from its folder alone
	release/check.sh $(VERSION)
