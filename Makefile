# The two commands: `make run` serves the demo model, `make test` proves the build. Each sets up what it needs.
JOBS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
PORT ?= 8000
PREFIX ?= /usr/local
QUIRE = build/release/bin/quire
MODEL ?= models/quire-demo
# Kernels for NVIDIA GPUs: ON, OFF; else where there is a driver. tools/setup.sh reads it, too.
CUDA_OPTION = $(if $(QUIRE_CUDA),-DQUIRE_CUDA=$(QUIRE_CUDA))

.PHONY: run test test-deep test-cuda setup build build-dev install package bench format tidy clean

run: build
	$(QUIRE) serve $(MODEL) --port $(PORT)

build: setup
	cmake --preset release $(CUDA_OPTION) >build/cmake.log 2>&1 || { cat build/cmake.log; exit 1; }
	cmake --build --preset release -j $(JOBS) --target quire

setup:
	@mkdir -p build && tools/setup.sh

# Unit, property, parity and bits tests, the installed tree, the Python package, and real clients against a real server.
test:
	@mkdir -p build && tools/test.sh

# Sanitizers and whatever else takes long. One part alone: make test-deep PART=tsan
test-deep:
	@mkdir -p build && tools/test_deep.sh $(PART)

# The kernels for NVIDIA GPUs, and a server on one, on a machine that has it.
test-cuda:
	@mkdir -p build && tools/setup.sh --cuda
	cmake --preset release -DQUIRE_CUDA=ON >build/cmake.log 2>&1 || { cat build/cmake.log; exit 1; }
	cmake --build --preset release -j $(JOBS) --target quire cuda_kernels_test ops_tests parity_tests engine_tests engine_grammar_tests lost_device_tests
	tools/test_cuda.py

install: build
	cmake --install build/release --prefix $(PREFIX)

# Packages for x86-64 Linux, in build/packages; package/README.md says what they hold.
package: build
	tools/setup.sh --packages
	python3 package/package.py

bench: setup
	cmake --preset release $(CUDA_OPTION) >/dev/null
	cmake --build --preset release -j $(JOBS)
	$(QUIRE) bench throughput $(MODEL)

format:
	tools/source_files.py '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format-19 -i

tidy:
	cmake --preset release >/dev/null
	tools/source_files.py 'src/*.cpp' | xargs -P $(JOBS) -n 4 clang-tidy-19 -p build/release --quiet --extra-arg=-Wno-ignored-gch

clean:
	rm -rf build
