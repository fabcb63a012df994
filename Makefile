# Two commands matter: `make demo` and `make test`. Both set up everything from a fresh clone: a virtual environment with
# pinned packages, and the build. Needed beforehand: Python 3.11 to 3.13 with venv, a C++20 compiler, make.

SHELL := /bin/bash
PYTHON := $(or $(PYTHON),$(shell sh tools/find_python.sh))
VENV ?= .venv
PY = $(VENV)/bin/python
BUILD ?= build
TAG := $(shell $(PYTHON) -c 'import sys; print("py%d%d" % sys.version_info[:2])')
DEV = $(BUILD)/$(TAG)
CMAKE_FLAGS ?=
CCACHE := $(shell command -v ccache)
# As many compilers as cores: ninja starts two more, which cost a tenth of processor time on two cores.
CORES := $(shell nproc)
CONFIGURE = $(VENV)/bin/cmake -S . -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(VENV))/bin/ninja \
	$(if $(CCACHE),-DCMAKE_CXX_COMPILER_LAUNCHER=$(CCACHE)) $(CMAKE_FLAGS)
LLVM = $(shell $(PY) -c "import importlib.util as u; print(u.find_spec('llvmlite').submodule_search_locations[0] + '/binding/libllvmlite.so')")
OTHER_PYTHONS = 3.11 3.12 3.13

# All targets: none is the name of a file.
.PHONY: $(shell sed -n 's/^\([a-z][a-z0-9-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

demo: build-extension
	$(PY) -m tatara demo

test: build test-cpp test-python test-other-pythons

# Two processes share two cores: OpenMP's threads of one that wait for work sleep, and leave the core to the other.
test-python test-other-pythons: export OMP_WAIT_POLICY = passive

setup:
	@test -n "$(PYTHON)" || { echo "Tatara needs Python 3.11, 3.12 or 3.13"; exit 1; }
	@$(PYTHON) tools/setup_venv.py $(VENV) requirements.txt

configure: setup
	@test -f $(DEV)/build.ninja || $(CONFIGURE) -B $(DEV) -DPython_EXECUTABLE=$(abspath $(PY))

build: configure
	$(VENV)/bin/cmake --build $(DEV) --parallel $(CORES)

# Without the C++ tests.
build-extension: configure
	$(VENV)/bin/cmake --build $(DEV) --parallel $(CORES) --target _core

# The C++ core without Python and torch, on two cores.
test-cpp: build
	export TATARA_LLVM=$(LLVM); $(DEV)/tests/unit/tatara_unit_tests --part=1/2 & first=$$!; \
	$(DEV)/tests/unit/tatara_unit_tests --part=2/2; second=$$?; wait $$first && exit $$second

# The NumPy tests by themselves: they show that torch is not loaded.
test-python: build
	$(PY) -m pytest -q -n 2 tests --ignore tests/numpy
	$(PY) -m pytest -q -n 2 tests/numpy

# Under a minute with a finished build: the C++ tests without those of many seconds, and a few cases of each feature.
smoke: build
	TATARA_LLVM=$(LLVM) $(DEV)/tests/unit/tatara_unit_tests $(SLOW_UNIT_TESTS:%=--without=%)
	$(PY) -m pytest -q -m smoke tests/capture tests/autograd tests/func tests/runtime
	$(PY) -m pytest -q -m smoke tests/numpy

SLOW_UNIT_TESTS = CodegenGpu.NvidiasAssemblerTakesEveryKernel CodegenGpu.PtxCallsNothingOutside Gemm.MoreThanIsPackedAtOnce

# The virtual machine and the capture of NumPy code on the other versions of Python.
test-other-pythons: build
	$(call for_other_pythons,one-other-python)

build-other-pythons: build
	$(call for_other_pythons,build-other-python)

# A line with make in it runs under `make -n` too, so nothing else is in it.
define for_other_pythons
	@for version in $(OTHER_PYTHONS); do \
	  python=$$(sh tools/find_python.sh $$version); \
	  if [ -z "$$python" ]; then echo "Python $$version is not here: it is left out"; continue; fi; \
	  if [ "py$${version/./}" = "$(TAG)" ]; then continue; fi; \
	  $(MAKE) --no-print-directory $(1) VERSION=$$version OTHER="$$python" || exit 1; \
	done
endef

OTHER_VENV = .venv-$(VERSION)
.PHONY: one-other-python build-other-python
build-other-python:
	@$(OTHER) tools/setup_venv.py $(OTHER_VENV) requirements-core.txt
	@test -f $(BUILD)/other-$(VERSION)/build.ninja || $(CONFIGURE) -B $(BUILD)/other-$(VERSION) -DTATARA_BUILD_TESTS=OFF \
	  -DTATARA_PREBUILT_CORE=$(abspath $(DEV)) -DPython_EXECUTABLE=$(abspath $(OTHER_VENV))/bin/python
	$(VENV)/bin/cmake --build $(BUILD)/other-$(VERSION)

# The extension without torch: NumPy capture, and the virtual machine by itself.
one-other-python: build-other-python
	$(OTHER_VENV)/bin/python -m pytest -q -n 2 tests/numpy tests/pyvm \
	  tests/errors/test_environment.py::test_eight_threads_compile_the_same_function

# CPython's own tests, every frame run by the virtual machine, on every version that is here. Needs no packages.
pyvm:
	@status=0; for version in $(OTHER_PYTHONS); do \
	  python=$$(sh tools/find_python.sh $$version); \
	  if [ -z "$$python" ]; then echo "Python $$version is not here"; continue; fi; \
	  bash tests/pyvm/build.sh $$python $(BUILD)/pyvm-$$version && \
	  $$python tools/pyvm.py $(BUILD)/pyvm-$$version || status=1; \
	done; exit $$status

# Generated programs of each class, compiled, beside eager: ARGS="containers --count 5000".
fuzz: build
	PYTHONPATH=tools/sweeps $(PY) -m generated $(ARGS)

# How long Ctrl-C takes in a compilation of 20,000 operators.
interrupts: build
	$(PY) tools/sweeps/interrupts.py $(ARGS)

# 1,000 signals at random moments of capture, compilation and runs, NumPy programs under each Python that is here.
signal-storm: build build-other-pythons
	@$(PY) tools/sweeps/signal_storm.py --python $(PY) $(addprefix --python ,$(wildcard $(OTHER_PYTHONS:%=.venv-%/bin/python))) $(ARGS)

# Every class of the auto mappings of transformers at a small size, inference and training: ARGS="--resume --page docs/zoo.md".
zoo: build
	PYTHONPATH=tools/sweeps $(PY) -m architectures $(ARGS)

# torch.compile with all backends, torch.cond and its kin, torch.export and others inside of compiled code at every position,
# and around it: about two hours.
other-compilers: build
	TATARA_ALL_COMPILERS=1 $(PY) -m pytest -q -p no:logging tests/capture/modes/test_other_compilers.py

# The pictures of docs/gallery.md, each by its example: GALLERY=n_body for one. Needs matplotlib.
GALLERY ?= $(filter-out gallery,$(basename $(notdir $(wildcard examples/*.py))))
gallery: build
	$(foreach name,$(GALLERY),$(PY) examples/$(name).py --out docs/gallery/$(name).png && ) true

bench-models: build
	$(PY) bench/models.py

# Training steps of six models: losses, compile and step times, peak memory.
bench-steps: build
	$(PY) bench/whole_steps.py

bench-train: build
	$(PY) bench/train.py
	$(PY) bench/train.py --whole --no-memory

# Peak memory of a model whose layers are checkpoints.
bench-checkpoint: build
	$(PY) bench/checkpoint.py

# Higher, forward and batched derivatives.
bench-transforms: build
	$(PY) bench/transforms.py

# Programs in which data decide sizes; on a GPU if there is one.
bench-data-sizes: build
	$(PY) bench/data_sizes.py

# The programs of the NPBench suite, fetched by name.
bench-numpy: build
	$(PY) bench/numpy_programs.py

bench-numpy-gpu: build
	$(PY) bench/numpy_programs.py --device cuda --preset M

# The array API standard's own tests, fetched by name: ARGS="--examples 200 --mode arrays".
array-api: build
	$(PY) tools/array_api.py $(ARGS)

bench-products: build
	$(PY) bench/products.py

# Products with few rows, of plain and quantised weights: ARGS="--rows 1 --kinds int4 --device cuda".
bench-thin: build
	$(PY) bench/thin_products.py $(ARGS)

bench-kernels: build
	$(PY) bench/kernels.py

# On a machine with an NVIDIA GPU and a torch for CUDA in $(VENV).
bench-kernels-gpu: build
	$(PY) bench/kernels_gpu.py

bench-products-gpu: build
	$(PY) bench/products_gpu.py
	$(PY) bench/products_gpu.py --dtype float16

bench-grouped-gpu: build
	$(PY) bench/grouped_products.py

bench-scaled-gpu: build
	$(PY) bench/scaled_products.py

bench-attention-gpu: build
	$(PY) bench/attention_gpu.py $(ARGS)

bench-models-gpu: build
	$(PY) bench/models_gpu.py

bench-train-gpu: build
	$(PY) bench/train_gpu.py

test-gpu: build
	$(PY) -m pytest -q tests/gpu

bench-calls-gpu: build
	$(PY) bench/calls_gpu.py

# 1,000 calls with changed inputs under NVIDIA's tools.
sanitize-gpu: build
	compute-sanitizer --tool memcheck --error-exitcode 1 $(PY) tests/gpu/many_calls.py
	compute-sanitizer --tool racecheck --error-exitcode 1 $(PY) tests/gpu/many_calls.py

# Compile time per operator of programs of up to 50,000 operators.
bench-scaling: build
	$(PY) bench/scaling.py $(ARGS)

# Loops of tensors, by the number of turns.
bench-loops: build
	$(PY) bench/loop_programs.py $(ARGS)

bench-calls: build
	$(PY) bench/calls.py

# The tests of scikit-learn and SciPy of the array API, plainly and compiled: ARGS="sklearn" or "scipy --parts special,fft".
library-tests: build
	$(PY) tools/sweeps/library_tests.py $(ARGS)

# Estimators and metrics of scikit-learn on tensors, if it is here: PYTHONPATH=FOLDER for one elsewhere.
estimators: build
	$(PY) tools/sweeps/estimators.py $(ARGS)

opinfo: build
	$(PY) tools/sweeps/sweep.py $(ARGS)

# Every factory and sampler of torch with every combination of dtype, device, generator and layout.
factories: build
	$(PY) tools/sweeps/factories.py $(ARGS)

# Every public function of NumPy's namespaces by element type and layout.
numpy-table: build
	$(PY) tools/sweeps/numpy_table.py $(ARGS)

# Every overload of the dispatcher's that the registry serves, called as itself: the samples' calls, with each optional
# argument left out.
overloads: build
	$(PY) tools/sweeps/overloads.py $(ARGS)

# First and second derivatives of the same samples.
opinfo-gradients: build
	$(PY) tools/sweeps/gradients.py $(ARGS)

# The same samples under torch.vmap and torch.func.jvp inside of compiled code.
opinfo-vmap: build
	$(PY) tools/sweeps/vmap.py $(ARGS)

# The same samples, whose results are read by kernels.
opinfo-consumed: build
	$(PY) tools/sweeps/consumed.py $(ARGS)

# The same entries on operands that the suite's samples do not have: views, empty ones, aliases, out=, in place, mixed dtypes.
opinfo-layouts: build
	$(PY) tools/sweeps/layouts.py $(ARGS)

opinfo-forward: build
	$(PY) tools/sweeps/forward.py $(ARGS)

# The host's own suites of modules (forward and backward) and of optimizers (ten steps with schedulers).
modules: build
	$(PY) tools/sweeps/modules.py $(ARGS)

optimizers: build
	$(PY) tools/sweeps/optimizers.py $(ARGS)

# docs/status.md: what each operator of torch's suite is when it is run, differentiated, batched, differentiated forward.
status: build
	$(PY) tools/sweeps/sweep.py -j 2 --dtypes bool int64 float16 bfloat16 float32 float64 complex64 autocast errors \
	  --page docs/status.md
	$(PY) tools/sweeps/gradients.py -j 2 --samples 12 --time-limit 120 --page docs/status.md
	$(PY) tools/sweeps/vmap.py -j 2 --samples 4 --time-limit 120 --page docs/status.md
	$(PY) tools/sweeps/forward.py -j 2 --samples 12 --time-limit 120 --page docs/status.md

lint: setup
	$(PY) tools/lint.py

# Rewrites what lint would complain about in the layout of the code.
format: setup
	$(PY) tools/lint.py --fix

# The C++ unit tests under the address and undefined-behaviour sanitizers, and under the thread sanitizer.
asan: setup
	@test -f $(BUILD)/asan/build.ninja || $(CONFIGURE) -B $(BUILD)/asan -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g" -DTATARA_BUILD_PYTHON=OFF -DTATARA_UNITY=OFF -DTATARA_SANITIZE=address,undefined
	$(VENV)/bin/cmake --build $(BUILD)/asan --target tatara_unit_tests
	TATARA_LLVM=$(LLVM) $(BUILD)/asan/tests/unit/tatara_unit_tests

# A million random changes of the disk cache's entries, of plans and of objects in it, under the same sanitizers.
CHANGES ?= 1000000
fuzz-cache: setup
	@test -f $(BUILD)/asan/build.ninja || $(CONFIGURE) -B $(BUILD)/asan -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g" -DTATARA_BUILD_PYTHON=OFF -DTATARA_UNITY=OFF -DTATARA_SANITIZE=address,undefined
	$(VENV)/bin/cmake --build $(BUILD)/asan --target tatara_unit_tests
	TATARA_LLVM=$(LLVM) TATARA_FUZZ_COUNT=$(CHANGES) $(BUILD)/asan/tests/unit/tatara_unit_tests --filter=CacheFuzz

tsan: setup
	@test -f $(BUILD)/tsan/build.ninja || $(CONFIGURE) -B $(BUILD)/tsan -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -g" -DTATARA_BUILD_PYTHON=OFF -DTATARA_UNITY=OFF -DTATARA_SANITIZE=thread
	$(VENV)/bin/cmake --build $(BUILD)/tsan --target tatara_unit_tests
	TATARA_LLVM=$(LLVM) $(BUILD)/tsan/tests/unit/tatara_unit_tests

# Line coverage of the C++ core by its unit tests.
coverage: setup
	@test -f $(BUILD)/coverage/build.ninja || $(CONFIGURE) -B $(BUILD)/coverage -DCMAKE_BUILD_TYPE=Debug \
	  -DTATARA_BUILD_PYTHON=OFF -DTATARA_UNITY=OFF -DTATARA_COVERAGE=ON
	$(VENV)/bin/cmake --build $(BUILD)/coverage --target tatara_unit_tests
	TATARA_LLVM=$(LLVM) $(BUILD)/coverage/tests/unit/tatara_unit_tests
	$(PY) tools/coverage.py $(BUILD)/coverage

clean:
	rm -rf $(BUILD) dist python/tatara/_core*.so
