# Everything is built and run from Go modules; `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

# grpcnotrace keeps golang.org/x/net/trace out of every binary, and html/template out of all but the coordinator's (megabytes of memory).
export GOFLAGS := -tags=grpcnotrace -buildvcs=false
# One setting for all that is not a race build lets one build cache serve the lab, the tools and `go build`.
STATIC := CGO_ENABLED=0

GOLANGCI_VERSION    := v2.15.0
GOVULNCHECK_VERSION := v1.8.0
CONTROLLER_GEN_VERSION := v0.23.0
CRANE_VERSION := v0.22.1
# From v2.18 on it wants Go 1.27.
GORELEASER_VERSION := v2.15.4
# VERSION is what the programs and images are of: a tag of this very commit, or the commit.
VERSION ?= $(shell ./hack/version)
COMMIT = $(shell git rev-parse HEAD 2> /dev/null)
RELEASE = -X yurtcoordinator/internal/version.version=$(VERSION) -X yurtcoordinator/internal/version.commit=$(COMMIT)

TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/yurtlab/tools
GOLANGCI    := $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)/golangci-lint
GOVULNCHECK := $(TOOLS)/govulncheck-$(GOVULNCHECK_VERSION)/govulncheck
CRANE       := $(TOOLS)/crane-$(CRANE_VERSION)/crane
GORELEASER  := $(TOOLS)/goreleaser-$(GORELEASER_VERSION)/goreleaser
CONTROLLER_GEN := $(TOOLS)/controller-gen-$(CONTROLLER_GEN_VERSION)/controller-gen
YURTLAB := bin/yurtlab

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-10s %s\n", $$1, $$2}'

# The product, the API's types and the lab: ./... is within one of them.
MODULES := . apis lab

BUILD = $(STATIC) go build -ldflags "-s -w $(RELEASE)" -o $(CURDIR)/bin/

.PHONY: build
build: yurtlab ## build all programs into bin/
	$(BUILD) ./cmd/...

.PHONY: yurtlab
yurtlab: # the lab's program alone
	cd lab && $(BUILD) ./cmd/...

.PHONY: lab
lab: yurtlab ## start the lab and watch it; Ctrl-C ends it
	$(YURTLAB) up

# What `test` may take, in minutes, on two quiet cores, with warm caches of builds and no cached result of a test.
BUDGET := 20

# timed TARGET makes a target, and says how long that took, and how much time of processors.
TIMED = timed() { local TIMEFORMAT="$$1: %0R s; processors: %0U s of user, %0S s of system"; time $(MAKE) --no-print-directory $$1; }

.PHONY: test
test: ## unit tests, checks, the simulation, and the end-to-end scenarios of the core; also says how long each took
	@$(TIMED); timed setup; timed generated; said=$$(mktemp); failed=; \
	echo "Unit tests and checks run beside the scenarios. What they say comes at the end."; \
	nice -n 19 $(MAKE) --no-print-directory checks > "$$said" 2>&1 & checks=$$!; \
	trap 'kill $$checks 2> /dev/null || true; rm -f "$$said"' EXIT; \
	timed e2e-core || failed+=" e2e-core"; \
	wait $$checks || failed+=" checks"; cat "$$said"; \
	printf 'in all: %d s of %d\n' $$SECONDS $$((60 * $(BUDGET))); \
	[ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

# Scenarios mostly wait, and the rest mostly computes. So `test` runs them side by side, and scenarios come first. What makes files
# runs before, because scenarios build programs from them.
.PHONY: checks
checks:
	@$(TIMED); for part in unit fmt-check lint simulation; do timed $$part; done

.PHONY: quick
quick: yurtlab ## check a change of pages, examples or the chart: a few minutes, once Kubernetes is built
	export $(TOOLS_OF_TESTS); $(STATIC) go test -vet=off . ./deploy/... ./hack ./hack/release $(HELD_TO_PAGES)
	cd lab && $(STATIC) go test -vet=off ./e2e ./yurtlab

# Programs whose commands the pages show, besides yurtlab.
HELD_TO_PAGES = ./internal/pages ./internal/plugin ./internal/hub/join

.PHONY: unit
unit: setup $(GOVULNCHECK) ## unit tests, with the race detector where goroutines are started
	export $(TOOLS_OF_TESTS); CGO_ENABLED=1 go test -race $(TEST) $(filter-out $(WITHOUT_RACE),$(UNIT))
	export $(TOOLS_OF_TESTS); $(STATIC) go test $(TEST) $(filter-out $(SIMULATION),$(WITHOUT_RACE))
	cd apis && $(STATIC) go test $(TEST) ./...
	cd lab && CGO_ENABLED=1 go test -race $(TEST) $(filter-out $(LAB_WITHOUT_RACE),$(LAB_UNIT))
	cd lab && $(STATIC) go test $(TEST) $(LAB_WITHOUT_RACE)

# The linter has go vet. `go test` would run it besides, over all of Kubernetes, and once more with the race detector.
TEST = -vet=off -count=1 -timeout 20m

# Tests of controllers and of the chart use a real API server and Helm.
TOOLS_OF_TESTS = KUBEBUILDER_ASSETS=$$($(YURTLAB) build --print kubernetes) HELM=$$($(YURTLAB) build --print helm)/helm

UNIT = $(shell go list ./...)
LAB_UNIT = $(shell go -C lab list ./... | grep -v /e2e$$)
# Packages that start no goroutine: pages, charts, what makes releases, what only computes, and each controller; that of
# internal/cloud runs all of them together, with the race detector. Those whose tests have a kube-apiserver in them, which takes ten
# minutes to compile with the race detector; `make e2e` has it in that program. And the simulation, which takes six times as long with
# it: it runs on one processor, and what it runs has races looked for in its own tests.
WITHOUT_RACE = $(shell go list . ./deploy/... ./hack/... ./cmd/yurt-coordinator ./internal/pool ./internal/pool/apiserver \
    ./internal/{doubt,edge,logs,oci,pages,release,signed} ./internal/version/... ./internal/hub/{bypass,join} ./internal/stream/edit \
    ./internal/cloud/{appset,approve,autonomy,certs,control,coordinator,fleet,forwarding,heartbeat,nodepool,operators,poolcut} \
    ./internal/cloud/{precedence,roll,settings,upgrades} ./internal/sim/...)
# So does the hollow kubelet, which is Kubernetes' kubelet; what is ours in it is in packages below it.
LAB_WITHOUT_RACE = $(shell go -C lab list ./build ./e2e/panels ./hollow ./image ./line)

SIMULATION = yurtcoordinator/internal/sim/world

.PHONY: simulation
simulation: ## the simulation's histories
	$(STATIC) go test $(TEST) $(SIMULATION)

.PHONY: setup
setup: yurtlab ## install what the tests need (Debian packages as root; else say what to install) and build Kubernetes once
	$(YURTLAB) build --helm

.PHONY: e2e-core
e2e-core: setup ## the end-to-end scenarios of the core
	cd lab && $(STATIC) go test $(TEST) -v -timeout 60m ./e2e -scenarios core

.PHONY: e2e
e2e: setup alerts ## the alerts' cases, and all end-to-end scenarios, those with Kubernetes' own timing among them; our programs have the race detector
	cd lab && $(STATIC) go test $(TEST) -v -timeout 6h ./e2e -scenarios all -raced

.PHONY: static
static: fmt-check lint generated

.PHONY: check
check: static vet vuln ## formatting, lint with go vet in it, generated code, known vulnerabilities

# A module besides: a program of the lab whose libraries are of another version than ours.
NESTED := lab/kubectlolder

.PHONY: fmt-check
fmt-check:
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "gofmt would change:"; echo "$$out"; exit 1; }

.PHONY: vet
vet: # the ten lines of another module: the linter vets all else. They cost the compilation of a whole kubectl, so `test` goes without
	cd $(NESTED) && $(STATIC) go vet ./...

.PHONY: lint
lint: $(GOLANGCI)
	for module in $(MODULES); do (cd $$module && $(STATIC) $(GOLANGCI) run --timeout 20m ./...); done

.PHONY: generated
generated: generate ## fail if generated files or go.mod are not what their sources make
	for module in $(MODULES) $(NESTED); do (cd $$module && $(STATIC) go mod tidy -diff); done
	@git diff --exit-code || { echo "generated files are stale: commit what go generate made"; exit 1; }

.PHONY: generate
generate: $(CONTROLLER_GEN) ## make what is generated: the deep copies of the API's types, and their CRDs
	for module in $(MODULES); do (cd $$module && $(STATIC) go generate ./...); done
	cd apis && $(STATIC) $(CONTROLLER_GEN) object crd paths=./... \
	    output:crd:dir=$(CURDIR)/deploy/charts/yurt-coordinator/files/crds

.PHONY: vuln
vuln: $(GOVULNCHECK) ## known vulnerabilities that our programs can reach; VULN_DB is another database, VULN=skip goes on without
	for module in . lab; do \
	    $(STATIC) go run ./hack/vuln -root $$module -govulncheck $(GOVULNCHECK) $(if $(VULN_DB),-db '$(VULN_DB)') \
	        $(if $(filter skip,$(VULN)),-skip); \
	done

.PHONY: bench
bench: setup ## benchmarks, side by side in one run; UNIT names packages, SCALE has flags of cloud-scale
	export $(TOOLS_OF_TESTS); CGO_ENABLED=0 go test -run '^$$' -bench . -benchtime 2s -timeout 40m $(UNIT)
	$(YURTLAB) bench
	$(YURTLAB) bench cloud-scale $(SCALE)

.PHONY: alerts
alerts: yurtlab ## check the chart's alerts and run their cases, with Prometheus' promtool; the first time, build it
	mkdir -p dist/alerts
	cp deploy/charts/testdata/alerts.cases.yaml dist/alerts/cases.yaml
	{ echo groups:; cat deploy/charts/yurt-coordinator/files/alerts.yaml; } > dist/alerts/alerts.yaml
	promtool=$$($(YURTLAB) build --print prometheus)/promtool; cd dist/alerts && $$promtool check rules alerts.yaml && \
	    $$promtool test rules cases.yaml

.PHONY: dashboards
dashboards: ## check the dashboards against Grafana's schema; needs Node.js and npm's registry
	cd hack/dashboards && npm ci --no-audit --no-fund && node check.mjs

.PHONY: pictures
pictures: setup ## draw the dashboards from a lab's series, with Grafana's components; needs npm's registry and Chromium: dist/dashboards
	rm -rf dist/series
	YURTLAB_SERIES=dist/series $(YURTLAB) run dashboards
	cd hack/dashboards/draw && npm ci --no-audit --no-fund --ignore-scripts
	node hack/dashboards/draw/draw.mjs $$($(YURTLAB) build --print prometheus)/prometheus dist/series dist/dashboards

.PHONY: recording
recording: build ## record the README's terminal session anew, in the lab "default"; needs Debian's asciinema and termtosvg
	$(YURTLAB) up --detach --installed
	asciinema rec --overwrite --quiet --cols 100 --rows 22 --title "a cloud and a site of three nodes, in the lab" \
	    --command docs/img/cut.sh docs/img/cut.cast || { $(YURTLAB) down; exit 1; }
	$(YURTLAB) down
	termtosvg render docs/img/cut.cast docs/img/cut.svg --template window_frame --max-frame-duration 3000 --loop-delay 5000

.PHONY: plots
plots: ## draw the pictures of docs/benchmarks.md anew, from the results in docs/data; needs Debian's gnuplot-nox
	gnuplot docs/data/plots.gp

# What is released: flags of the linker as lab/build has them, so that programs say which Kubernetes they are made of.
ARCHITECTURES ?= amd64 arm64
KUBERNETES = $(shell go list -m -f '{{.Version}}' k8s.io/kubernetes)
number = $(word $(1),$(subst ., ,$(patsubst v%,%,$(KUBERNETES))))
LDFLAGS = -s -w -buildid= $(foreach p,k8s.io/component-base/version k8s.io/client-go/pkg/version,-X $(p).gitVersion=$(KUBERNETES) \
    -X $(p).gitMajor=$(call number,1) -X $(p).gitMinor=$(call number,2) -X $(p).gitTreeState=clean) $(RELEASE)
export DOWNLOADS ?= https://example.org/releases
RELEASED = ./cmd/yurthub ./cmd/kubectl-yurt ./cmd/yurt-coordinator ./cmd/coordinator-controller
# No setting of the user's changes what is built.
EVERYWHERE = GOOS=linux GOWORK=off GOEXPERIMENT= GOFIPS140=off GOAMD64=v1 GOARM64=v8.0
IMAGES ?= yurthub yurt-coordinator coordinator-controller
# The labels are of the commit, so that all who build it get the same.
CREATED = $(shell git log -1 --format=%cI)
OF_RELEASE = --version $(VERSION) --kubernetes $(KUBERNETES) --revision $(COMMIT) --created $(CREATED) \
    $(if $(REGISTRY),--registry $(REGISTRY))

push = while read -r dir name; do $(CRANE) push $(1)/layouts/$$dir $$name; done < $(1)/layouts/names

.PHONY: ldflags
ldflags: # what programs of a release are linked with
	@echo '$(LDFLAGS)'

.PHONY: images
images: ## build the container images into dist/images: IMAGES=programs, ARCHITECTURES="amd64 arm64"
	rm -rf dist/programs
	for arch in $(ARCHITECTURES); do \
	    $(STATIC) $(EVERYWHERE) GOARCH=$$arch go build -trimpath -ldflags '$(LDFLAGS)' -o dist/programs/linux/$$arch/ \
	        $(IMAGES:%=./cmd/%); \
	done
	$(STATIC) go run ./hack/release --sbom --version $(VERSION) dist/programs/linux/*/*
	$(STATIC) go run ./hack/release $(OF_RELEASE) --out dist/images

.PHONY: push
push: $(CRANE) ## build images and chart, and push them: make push REGISTRY=host/path
	@[ -n "$(REGISTRY)" ] || { echo "say where to: make push REGISTRY=host/path"; exit 1; }
	$(MAKE) --no-print-directory images
	$(call push,dist/images)

.PHONY: signer
signer: # what signs: the one program that gets the key
	$(STATIC) go build -trimpath -o bin/ ./hack/release

.PHONY: unsigned
unsigned: export VERSION := $(VERSION)
unsigned: export LDFLAGS := $(LDFLAGS)
unsigned: export GORELEASER_CURRENT_TAG := $(VERSION)
unsigned: signer $(GORELEASER) $(GOVULNCHECK) # all that a release is made of, into dist/programs and dist/page
	@[ -z "$$(git status --porcelain --untracked-files=no)" ] || { echo "commit first: a release is of a commit"; exit 1; }
	rm -rf dist/programs dist/page; mkdir -p dist/page
	[ "$(VULN)" = skip ] || $(STATIC) go run ./hack/vuln -govulncheck $(GOVULNCHECK) $(if $(VULN_DB),-db '$(VULN_DB)') \
	    -vex dist/page/vex.openvex.json -version $(VERSION) -created $(CREATED) $(RELEASED)
	sed 's/goarch: .*/goarch: [$(subst $(space),$(comma),$(strip $(ARCHITECTURES)))]/' .goreleaser.yaml > dist/goreleaser.yaml
	$(GORELEASER) release --config dist/goreleaser.yaml --clean --skip=announce,publish,validate
	cp dist/goreleaser/krew/yurt.yaml dist/goreleaser/krew-yurt.yaml
	$(STATIC) PACKED=1 go test -count=1 -v -run TestPacked ./hack/release
	cp LICENSE CHANGELOG.md dist/goreleaser/*.tar.gz dist/goreleaser/*.deb dist/goreleaser/*.rpm dist/goreleaser/krew-yurt.yaml dist/page/

.PHONY: release
release: ## make all that a release page has into dist/release, signed with the key in RELEASE_KEY; PUSH=yes (docs/releases.md)
	env -u RELEASE_KEY $(MAKE) --no-print-directory unsigned
	bin/release $(OF_RELEASE) --sign dist/page/*
	$(if $(PUSH),env -u RELEASE_KEY $(MAKE) --no-print-directory pushed)

.PHONY: pushed
pushed: crane # push what is in dist/release
	$(call push,dist/release)

.PHONY: crane
crane: $(CRANE)

.PHONY: release-facts
release-facts: # what who signs is told about the source, for a CI
	@echo 'kubernetes=$(KUBERNETES)'; echo 'created=$(CREATED)'

empty :=
space := $(empty) $(empty)
comma := ,

$(CRANE):
	GOFLAGS= GOBIN=$(dir $@) $(STATIC) go install github.com/google/go-containerregistry/cmd/crane@$(CRANE_VERSION)

$(GORELEASER):
	GOFLAGS= GOBIN=$(dir $@) $(STATIC) go install github.com/goreleaser/goreleaser/v2@$(GORELEASER_VERSION)

$(GOLANGCI):
	GOBIN=$(dir $@) $(STATIC) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

$(GOVULNCHECK):
	GOBIN=$(dir $@) $(STATIC) go install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)

$(CONTROLLER_GEN):
	GOBIN=$(dir $@) $(STATIC) go install sigs.k8s.io/controller-tools/cmd/controller-gen@$(CONTROLLER_GEN_VERSION)
