# The one command surface of Fairlead: people and .ci/run call these targets and nothing else.
# `make` or `make help` lists them. Needs Go and, for what touches a kernel, root on Debian 12 or later.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

GO      ?= go
MODULES := proto controller agent test
CACHE   := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/fairlead
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# Variables of single targets, to be set on the command line: make demo KEEP=1 MODE=iptables.
NODES   ?= 3
IPVS_NODES ?= 0
DIR     ?=
DNS     ?= 1
ALL     ?=
KEEP    ?=
MODE    ?=
RUN     ?= .
COUNT   ?= 1
RACE    ?= -race
export KEEP MODE NODES DIR

# Unit packages run side by side and under the race detector, what drives kernels and clusters one package at a time and
# without it: its clock is the kernel's, and a binary with the detector does not run in a user-mode kernel.
KERNEL  := ./agent/internal/iptables/... ./agent/internal/nftables/... ./agent/internal/ipvs/... ./agent/whole/...
UNIT     = ./proto/... ./controller/... $(shell $(GO) list ./agent/... | grep -v -e /iptables -e /nftables -e /ipvs -e /whole)
SYSTEM  := ./test/...
GOTEST  := $(GO) test -count=$(COUNT) -run '$(RUN)' -timeout 40m

# A tool is built outside the workspace from its own go.mod; the folder's name carries the pins, so that two clones with
# different pins share one cache without disturbing each other.
pins      = $(shell { cat test/tools/$(1)/go.mod test/tools/$(1)/go.sum; $(GO) version; } | sha256sum | cut -c1-12)
tooldir   = $(CACHE)/tools/$(1)-$(call pins,$(1))
BUF      := $(call tooldir,buf)/buf
PROTOC   := $(call tooldir,protoc)/protoc-gen-go
LINT     := $(call tooldir,golangci-lint)/golangci-lint
VULN     := $(call tooldir,govulncheck)/govulncheck
PROTOBUF := $(BUF) generate . --config test/tools/buf/buf.yaml --template test/tools/buf/buf.gen.yaml

.PHONY: help
help: ## list the targets
	@echo "Fairlead: make TARGET [VARIABLE=value]"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: bin/fairlead-controller bin/fairlead-agent ## build the two static binaries into bin/

# Without gRPC's tracing pages, which bring templates and with them all methods of all types, a fifth and a third of the binaries go.
bin/fairlead-%: FORCE
	CGO_ENABLED=0 $(GO) build -buildvcs=false -trimpath -tags grpcnotrace -ldflags '-s -w -X main.version=$(VERSION)' \
		-o $@ ./$*/cmd/fairlead-$*

.PHONY: test
test: packages build binaries ## run all tests: units under the race detector, then kernels and clusters (RUN=, COUNT=, RACE=)
	$(if $(RACE),CGO_ENABLED=1) $(GOTEST) $(RACE) $(UNIT)
	$(GOTEST) -p 1 $(KERNEL) $(SYSTEM)

.PHONY: unit
unit: ## run the unit tests of proto, controller and agent without the race detector (RUN=, COUNT=)
	$(GOTEST) $(UNIT)

.PHONY: race
race: packages ## run the unit tests of proto, controller and agent under the race detector (RUN=, COUNT=)
	CGO_ENABLED=1 $(GOTEST) -race $(UNIT)

.PHONY: lint
lint: $(LINT) verify-generate ## check the contract, the generated code and the house rules in all modules
	$(BUF) lint . --config test/tools/buf/buf.yaml
	@failed=0; for module in $(MODULES); do \
		echo "golangci-lint $$module"; (cd $$module && $(LINT) run ./...) || failed=1; \
	done; exit $$failed
	$(GO) test -count=1 ./test/rules/...

.PHONY: fmt
fmt: $(LINT) ## format all Go files the way lint wants them
	@for module in $(MODULES); do (cd $$module && $(LINT) fmt ./...); done

.PHONY: vulncheck
vulncheck: $(VULN) ## look for known vulnerabilities in what the modules call (asks the public database)
	@for module in $(MODULES); do echo "govulncheck $$module"; (cd $$module && GOWORK=off $(VULN) ./...); done

.PHONY: generate
generate: $(BUF) $(PROTOC) ## generate the Go code of proto/fairlead/v1
	PATH="$(dir $(PROTOC)):$$PATH" $(PROTOBUF) -o proto

.PHONY: verify-generate
verify-generate: $(BUF) $(PROTOC) ## fail if the committed generated code is not what generate would write
	@fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	PATH="$(dir $(PROTOC)):$$PATH" $(PROTOBUF) -o "$$fresh"; \
	for file in $$(cd "$$fresh" && find . -name '*.go'); do \
		diff -u "proto/$$file" "$$fresh/$$file" || { echo "proto/$$file is out of date: run make generate" >&2; exit 1; }; \
	done

.PHONY: docs
docs: ## write what is generated of the documentation: docs/configuration.md and the table of values of the chart
	$(GO) test -count=1 -run Current ./test/reference -update

.PHONY: demo
demo: packages build ## watch a real cluster's traffic follow Pod readiness (KEEP=1 leaves it running, MODE=iptables, nftables, or ipvs on one more node; PODS=0: plain processes in place of images and the chart)
	$(GO) run ./test/cmd/demo

.PHONY: cluster-up
cluster-up: packages ## start a real cluster and leave it running (NODES=3, IPVS_NODES=0, DIR=; DNS=0 leaves CoreDNS out)
	$(GO) run ./test/cmd/cluster up --nodes $(NODES) --ipvs-nodes $(IPVS_NODES) $(if $(filter-out 0,$(DNS)),--dns) $(if $(DIR),--dir $(DIR))

.PHONY: cluster-down
cluster-down: ## remove what cluster-up left, also after a crash (DIR=; ALL=1: every cluster of this machine)
	$(GO) run ./test/cmd/cluster down $(if $(ALL),--all,$(if $(DIR),--dir $(DIR)))

.PHONY: binaries
binaries: ## build Kubernetes, etcd and CoreDNS for the test cluster into the cache folder, once
	$(GO) run ./test/cmd/cluster binaries

.PHONY: packages
packages: ## install the Debian packages that tests and the demo need, if any is missing
	test/packages.sh

# listed fails unless go test knows a matching test: a target that finds nothing to run must not look like a success.
listed = $(GO) test $(1) -list '$(2)' $(SYSTEM) | grep '^$(3)' >/dev/null || { echo "no $(3)* in test/ yet, nothing to run" >&2; exit 1; }

.PHONY: e2e
e2e: packages build binaries ## run only the tests that drive a real cluster end to end
	$(call listed,,^TestE2E,TestE2E)
	$(GO) test -count=$(COUNT) -run '^TestE2E' -timeout 40m -p 1 -v $(SYSTEM)

.PHONY: soak
soak: packages build binaries ## run what takes longer than make test may: repeated kills, long outages
	$(call listed,-tags soak,^TestSoak,TestSoak)
	$(GO) test -tags soak -count=1 -run '^TestSoak' -timeout 8h -p 1 -v ./agent/... $(SYSTEM)

.PHONY: bench
bench: packages build binaries ## measure the agent beside kube-proxy, and the fan-out, into docs/benchmarks.md (PART=agent, ipvs, fanout or large: that part; QUICK=1: one small round, to look at)
	$(if $(filter-out agent ipvs fanout large,$(PART)),$(error PART=$(PART): give agent, ipvs, fanout or large))
	$(if $(filter agent,$(or $(PART),agent)),$(GO) run ./test/bench/cmd/bench $(if $(QUICK),--quick --modes=tables,--part=agent))
	$(if $(filter ipvs,$(or $(PART),ipvs)),$(GO) run ./test/bench/cmd/bench $(if $(QUICK),--quick --modes=IPVS,--part=ipvs))
	$(if $(filter fanout,$(or $(PART),fanout)),$(GO) run ./test/scale/cmd/fanout $(if $(QUICK),--quick))
	$(if $(filter large,$(or $(PART),large)),$(GO) run ./test/scale/cmd/fanout --large $(if $(QUICK),--quick))

.PHONY: images
images: ## build the two container images with buildah, docker or podman (ENGINE=, TAG=, GOLANG=, AGENT_BASE=, CONTROLLER_BASE=)
	test/images.sh $(VERSION)

.PHONY: tools
tools: $(BUF) $(PROTOC) $(LINT) $(VULN) ## build the pinned tools into the cache folder

$(BUF) $(PROTOC) $(LINT) $(VULN):
	@echo "building $(@F) ($(patsubst %/,%,$(@D)))"
	cd test/tools/$(shell basename $(@D) | sed 's/-[0-9a-f]*$$//') && GOWORK=off CGO_ENABLED=0 GOBIN=$(@D) $(GO) install -buildvcs=false tool

.PHONY: clean
clean: ## remove bin/ and cached test results; tools and cluster binaries stay in the cache folder
	rm -rf bin
	$(GO) clean -testcache

FORCE:
