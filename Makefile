# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# usiw: `make demo` shows the main job, `make check` runs every test. Both set a fresh
# Debian 12 up first (as root). `make help` lists the rest.

BUILD  := build
JOBS   := $(shell nproc)
CMAKE_FLAGS := -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo

.DEFAULT_GOAL := help
.PHONY: help demo compare check check-unit check-full setup-demo setup-check all module provider unit clean install

help:
	@echo 'make demo        build all, boot a guest, run rping and perftest over usiw, print a table'
	@echo 'make check       unit tests (also under sanitizers), the core guest suite on 6.1 and 6.12'
	@echo 'make check-full  the same with the whole guest suite: veth and netns on 6.1, core on 6.12'
	@echo 'make check-unit  unit tests only (under 2 minutes)'
	@echo 'make compare     usiw beside siw and rxe in the same guest (a markdown table)'
	@echo 'make all         module for both guest kernels, provider, tests'
	@echo 'make install     module for the running kernel and the provider, on this machine'
	@echo 'make clean       remove build/'

# ---- set-up: apt packages, nothing when all are there ----
setup-demo:
	@scripts/setup demo
setup-check:
	@scripts/setup check

# ---- the module, out of tree, once per kernel ----
# A farm of symbolic links per kernel, so that objects of two kernels never meet.
define build_module
	@mkdir -p $(BUILD)/kmod/$(1)
	@cp -asf $(CURDIR)/Kbuild $(CURDIR)/kmod $(CURDIR)/cm $(CURDIR)/uapi $(BUILD)/kmod/$(1)/
	@find $(BUILD)/kmod/$(1) -xtype l -delete
	$(MAKE) -s -C /lib/modules/$(1)/build M=$(CURDIR)/$(BUILD)/kmod/$(1) W=1 modules
endef

module-%: 
	$(call build_module,$(shell scripts/kver $*))
module: module-6.1 module-6.12

# ---- userspace ----
$(BUILD)/build.ninja:
	@cmake -S . -B $(BUILD) $(CMAKE_FLAGS) >$(BUILD)/cmake.log 2>&1 || { cat $(BUILD)/cmake.log; exit 1; }
$(BUILD)/asan/build.ninja:
	@cmake -S . -B $(BUILD)/asan $(CMAKE_FLAGS) -DUSIW_SANITIZE=ON >$(BUILD)/asan.log 2>&1 || { cat $(BUILD)/asan.log; exit 1; }
$(BUILD)/build.ninja $(BUILD)/asan/build.ninja: | $(BUILD)
$(BUILD):
	@mkdir -p $@

provider: $(BUILD)/build.ninja
	@cmake --build $(BUILD) --target usiw_provider -- -j$(JOBS)
unit: $(BUILD)/build.ninja
	@cmake --build $(BUILD) -- -j$(JOBS)
all: setup-check module unit

# ---- the two commands ----
demo: setup-demo module-6.1 provider
	@scripts/demo
compare: setup-check module-6.1 provider
	@scripts/compare

check-unit: setup-check unit
	@tests/run unit
check: setup-check module unit
	@tests/run core
check-full: setup-check module unit
	@tests/run all

# ---- a real machine ----
LIBDIR := $(shell gcc -print-multiarch 2>/dev/null | sed 's,^,/usr/lib/,')
install: provider
	$(call build_module,$(shell uname -r))
	$(MAKE) -C /lib/modules/$(shell uname -r)/build M=$(CURDIR)/$(BUILD)/kmod/$(shell uname -r) modules_install
	depmod -a
	install -D -m 0644 $(BUILD)/provider/libusiw-rdmav34.so $(DESTDIR)$(LIBDIR)/libibverbs/libusiw-rdmav34.so
	install -d $(DESTDIR)/etc/libibverbs.d
	echo 'driver usiw' > $(DESTDIR)/etc/libibverbs.d/usiw.driver

clean:
	rm -rf $(BUILD)
