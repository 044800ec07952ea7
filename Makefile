# A front door for people; CMakePresets.json is the build. 'make help' lists the targets.
SHELL := /bin/bash
JOBS ?= $(shell tools/jobs)
NICE ?=
RANKS ?= 2
export PATH := $(CURDIR)/.venv/bin:$(PATH)
BUILD := $(NICE) cmake --build build -j $(JOBS)

.DEFAULT_GOAL := all
.PHONY: all setup setup-build demo test fast format docs docs-check install clean help

all: setup-build  ## build the tool (build/bin/thinwire) and the Python package (importable in .venv)
	@echo "make: building the tool and the Python package; from nothing some 6 minutes on two cores"
	cmake --preset release
	$(BUILD)
	@tools/link_python
	@echo "make: build/bin/thinwire is ready; next: make demo, or build/bin/thinwire --help"

setup:  ## install what is missing, tests' needs included (apt-get and .venv); safe to repeat
	@tools/setup test

setup-build:
	@tools/setup build

demo: setup-build  ## train a small CNN on Fashion-MNIST with 2 ranks over TCP; builds only what that needs
	@echo "make: building what the demo needs; from nothing some 6 minutes on two cores"
	cmake --preset release
	$(BUILD) --target bin/thinwire
	build/bin/thinwire train --ranks $(RANKS)

test: setup  ## build everything and run every test
	@echo "make: building everything; from nothing some 15 minutes on two cores"
	cmake --preset dev
	$(BUILD)
	@tools/link_python
	tools/run_tests build

fast:  ## the quick tests alone, without torch (seconds)
	@tools/setup test
	cmake --preset plan
	$(NICE) cmake --build build-plan -j $(JOBS)
	tools/run_tests build-plan -L fast

format:  ## format every C++ source
	git ls-files '*.h' '*.cpp' | xargs clang-format -i

docs: setup-build  ## write the generated parts of the documents anew
	cmake --preset release
	$(BUILD) --target bin/thinwire
	tools/docs write build/bin/thinwire

docs-check: setup-build  ## fail when a generated part is stale
	cmake --preset release
	$(BUILD) --target bin/thinwire
	tools/docs check build/bin/thinwire

install: all  ## install headers, libraries and the CMake package (PREFIX=/usr/local)
	cmake --install build --prefix $(or $(PREFIX),/usr/local)

clean:  ## remove what was built (.venv stays)
	rm -rf build build-*

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile
	@echo "Variables: JOBS, RANKS, PREFIX, THINWIRE_TORCH (an existing torch), PIP_ARGS (options for pip)"
